package schedule

import (
	"errors"
	"sync"
	"time"
)

// zones are the time zones that were read from the disk; there are some hundred.
var zones sync.Map

// errZone says what a time zone must be.
var errZone = errors.New("timeZone is not a name of the IANA database that the operator has")

// Zone is a time zone of the IANA database; UTC where the name is empty.
func Zone(name string) (*time.Location, error) {
	stored, _ := zones.Load(name)
	if zone, ok := stored.(*time.Location); ok {
		return zone, nil
	}
	if name == "Local" { // it is not the same everywhere
		return nil, errZone
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, errZone
	}
	zones.Store(name, zone)
	return zone, nil
}
