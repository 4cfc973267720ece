// Package schedule tells when windows of time that recur are open: those of a GameAutoscaler's
// schedules and of an ElasticService's awake. It reads cron expressions, and goes by the clocks
// of a time zone, also where those are put forward or back. It is a function of the time.
package schedule
