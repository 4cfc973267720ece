//go:build !race

package dataplane

const raceFactor = 1
