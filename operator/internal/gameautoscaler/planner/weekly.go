package planner

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"dormouse.dev/dormouse/operator/internal/schedule"
)

const (
	// weeks is how many of them are remembered of each hour.
	weeks = 6
	// hoursOfWeek begin with Sunday's first.
	hoursOfWeek = 7 * 24
	// mostScored bounds the score: the hours before count half from then on.
	mostScored = 1000
	// weeklyVersion tells how a weekly is stored.
	weeklyVersion = 1
)

// weekly is when players came in the last weeks, by the hours that clocks of a zone show. It has
// one size, 2 KiB, however long it is kept.
type weekly struct {
	// Peaks are the most players of each hour of the week plus 1, the last week's first; 0 where
	// nobody looked.
	Peaks [hoursOfWeek][weeks]uint16
	// Hour is when the hour began that is looked at, in seconds of what clocks show, and Peak
	// its most players so far plus 1; 0 where nobody has looked yet.
	Hour int64
	Peak uint16
	// Expected is 1 where somebody was expected in that hour. Of the hours in which somebody was
	// expected, or came, Right are those in which both is so.
	Expected     uint8
	Right, Wrong uint16
	// Room is how many players a Server had room for, when that was last seen.
	Room uint32
}

// remember takes in how many play now. Where the next hour has begun the one before is put away,
// and scored against what was expected; hours in which nobody looked are left out.
func (w weekly) remember(now time.Time, zone *time.Location, o Observed, expects func(weekly, int) bool) weekly {
	hour := hourShown(now, zone).Unix()
	if w.Hour != hour {
		if w.Peak > 0 {
			at := hourOfWeek(time.Unix(w.Hour, 0).UTC())
			w.score(w.Expected > 0, w.Peak > 1)
			row := &w.Peaks[at]
			copy(row[1:], row[:weeks-1])
			row[0] = w.Peak
		}
		w.Hour, w.Peak, w.Expected = hour, 0, 0
		if expects(w, hourOfWeek(hourShown(now, zone))) {
			w.Expected = 1
		}
	}
	if !o.Fresh {
		return w
	}
	w.Peak = max(w.Peak, 1+uint16(max(0, min(o.Players, 1<<16-2)))) //nolint:gosec // it is bounded
	if o.Ready > 0 && o.Capacity > 0 {
		w.Room = uint32(max(1, min(o.Capacity/int64(o.Ready), 1<<32-1))) //nolint:gosec // it is bounded
	}
	return w
}

func (w *weekly) score(expected, came bool) {
	if !expected && !came {
		return // it is easy to be right about nights
	}
	if w.Right+w.Wrong >= mostScored {
		w.Right, w.Wrong = w.Right/2, w.Wrong/2
	}
	if expected && came {
		w.Right++
	} else {
		w.Wrong++
	}
}

// usual is what is remembered of an hour of the week: of how many weeks, in how many of them
// anybody played, and the most players in so many percent of the weeks.
func (w weekly) usual(hour int, percentile int32) (remembered, played int, players int64) {
	peaks := make([]int64, 0, weeks)
	for _, peak := range w.Peaks[hour] {
		if peak > 0 {
			peaks = append(peaks, int64(peak)-1)
		}
		if peak > 1 {
			played++
		}
	}
	if len(peaks) == 0 {
		return 0, 0, 0
	}
	slices.Sort(peaks)
	rank := (len(peaks)*int(percentile) + 99) / 100 // the nearest rank
	return len(peaks), played, peaks[max(1, min(rank, len(peaks)))-1]
}

// hourShown is the begin of the hour that clocks of a zone show, as a time in UTC.
func hourShown(t time.Time, zone *time.Location) time.Time {
	return schedule.ShownAt(t, schedule.OffsetAt(t, zone)).Truncate(time.Hour)
}

// hourEnds is when the hour ends that clocks of a zone show.
func hourEnds(t time.Time, zone *time.Location) time.Time {
	return t.Add(time.Hour - schedule.ShownAt(t, schedule.OffsetAt(t, zone)).Sub(hourShown(t, zone)))
}

func hourOfWeek(shown time.Time) int { return int(shown.Weekday())*24 + shown.Hour() }

// stored is how a weekly is kept in an object of the cluster, in less than 3 KiB.
func (w weekly) stored() (string, error) {
	var b bytes.Buffer
	b.WriteByte(weeklyVersion)
	if err := binary.Write(&b, binary.BigEndian, w); err != nil {
		return "", fmt.Errorf("encode what is remembered of players: %w", err)
	}
	return base64.RawStdEncoding.EncodeToString(b.Bytes()), nil
}

// weeklyOf reads what stored wrote.
func weeklyOf(text string) (weekly, error) {
	var w weekly
	content, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return w, fmt.Errorf("decode what is remembered of players: %w", err)
	}
	if len(content) != 1+binary.Size(w) || content[0] != weeklyVersion {
		return w, errors.New("decode what is remembered of players: it is of another version, or cut off")
	}
	if err := binary.Read(bytes.NewReader(content[1:]), binary.BigEndian, &w); err != nil {
		return weekly{}, fmt.Errorf("decode what is remembered of players: %w", err)
	}
	return w, nil
}
