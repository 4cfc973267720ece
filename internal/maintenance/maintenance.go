// Package maintenance reads until when an administrator keeps an ElasticService asleep. The operator
// and the resolvers go by the same reading of it.
package maintenance

import (
	"fmt"
	"time"

	"dormouse.dev/dormouse/api/wellknown"
)

// maxYear is the last year whose times can be written in every time zone.
const maxYear = 9998

// Stopped is until when a service is kept asleep that somebody stopped, and that nothing but starting
// it wakes. Players are told so, and no time.
var Stopped = time.Date(maxYear, time.December, 31, 0, 0, 0, 0, time.UTC)

// Until is until when the annotation keeps an ElasticService asleep; zero where there is none, or it
// can't be read, which the error explains.
func Until(annotations map[string]string) (time.Time, error) {
	return ParseTime(annotations, wellknown.KeepAsleepUntilAnnotation)
}

// ParseTime reads an annotation whose value is a time, as in RFC 3339; zero where there is none.
func ParseTime(annotations map[string]string, name string) (time.Time, error) {
	value, ok := annotations[name]
	if !ok {
		return time.Time{}, nil
	}
	until, err := time.Parse(time.RFC3339, value)
	if err != nil || until.Year() > maxYear {
		return time.Time{}, fmt.Errorf("annotation %s is %.60q and must be a time as in RFC 3339, such as 2026-11-27T18:00:00Z", name, value)
	}
	return until, nil
}
