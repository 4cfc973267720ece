package backup

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// clock is a Thursday, at noon.
var clock = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// made is one of Dormouse's Backups that began so long before noon, and ended with it.
func made(name string, ago time.Duration, phase v1alpha1.CopyPhase) *v1alpha1.Backup {
	at := metav1.NewTime(clock.Add(-ago))
	b := &v1alpha1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, CreationTimestamp: at, Labels: map[string]string{wellknown.BackupCauseLabel: causeSleep}},
		Spec:       v1alpha1.BackupRequest{Server: "survival-0"},
		Status:     v1alpha1.BackupStatus{Phase: phase, StartTime: &at, AtRest: true},
	}
	if ended(b) {
		b.Status.CompletionTime = &at
	}
	return b
}

func besideGame(b *v1alpha1.Backup) *v1alpha1.Backup { b.Status.AtRest = false; return b }

// changed makes a Backup one of a game that slept, while something else wrote.
func changed(b *v1alpha1.Backup) *v1alpha1.Backup { return besideGame(b) }

// woken makes a Backup one that was made for a sleep, and began when the game was there again.
func woken(b *v1alpha1.Backup) *v1alpha1.Backup {
	b.CreationTimestamp = metav1.NewTime(b.CreationTimestamp.Add(-time.Hour))
	return besideGame(b)
}

func TestWhenACopyIsDue(t *testing.T) {
	const hour = time.Hour
	daily := &v1alpha1.BackupSchedule{Cron: "0 4 * * *", TimeZone: "UTC"}
	type list = []*v1alpha1.Backup
	for name, c := range map[string]struct {
		notOnSleep bool
		schedule   *v1alpha1.BackupSchedule
		since      time.Duration // 0: long ago
		used       time.Duration // how long ago; 0: there are no disks
		awake      bool
		restoring  bool
		last       int32 // of keep; 0: 7
		backups    list
		cause      string
		after      time.Duration
		problem    bool
	}{
		"slept and never copied":                   {used: hour, cause: causeSleep},
		"awake":                                    {used: hour, awake: true},
		"no disks":                                 {schedule: daily, after: 16 * hour},
		"a Restore goes first":                     {used: hour, restoring: true},
		"a time has passed, and a Restore":         {notOnSleep: true, schedule: daily, used: 99 * hour, restoring: true, cause: causeSchedule, after: 16 * hour},
		"not asked for":                            {used: hour, notOnSleep: true},
		"copied since":                             {used: hour, backups: list{made("a", hour/2, v1alpha1.CopyComplete)}},
		"copied before":                            {used: hour, backups: list{made("a", 2*hour, v1alpha1.CopyComplete)}, cause: causeSleep},
		"copied in the second of its use":          {used: hour, backups: list{made("a", hour, v1alpha1.CopyComplete)}, cause: causeSleep},
		"copied beside the game only":              {used: hour, backups: list{besideGame(made("a", hour/2, v1alpha1.CopyComplete))}, cause: causeSleep},
		"copied when it had woken only":            {used: hour, backups: list{woken(made("a", time.Minute, v1alpha1.CopyComplete))}, cause: causeSleep},
		"something wrote meanwhile":                {used: hour, backups: list{changed(made("a", time.Minute, v1alpha1.CopyComplete))}, after: 9 * time.Minute},
		"something wrote a while ago":              {used: hour, backups: list{changed(made("a", 11*time.Minute, v1alpha1.CopyComplete))}, cause: causeSleep},
		"something wrote twice":                    {used: 2 * hour, backups: list{changed(made("a", hour, v1alpha1.CopyComplete)), changed(made("b", hour/2, v1alpha1.CopyComplete))}},
		"something wrote, and one failed":          {used: 2 * hour, backups: list{changed(made("a", hour, v1alpha1.CopyComplete)), made("b", 11*time.Minute, v1alpha1.CopyFailed)}, after: 49 * time.Minute},
		"something wrote twice before it was used": {used: 20 * time.Minute, backups: list{changed(made("a", hour, v1alpha1.CopyComplete)), changed(made("b", hour/2, v1alpha1.CopyComplete))}, cause: causeSleep},
		"something wrote, and a single copy stays": {used: hour, last: 1, backups: list{changed(made("a", 11*time.Minute, v1alpha1.CopyComplete))}},
		"something wrote twice, and a time has passed": {schedule: daily, used: 99 * hour, cause: causeSchedule, after: 16 * hour, backups: list{
			changed(made("a", 90*hour, v1alpha1.CopyComplete)), changed(made("b", 89*hour, v1alpha1.CopyComplete)),
		}},
		"a copy waits":                                {used: hour, schedule: daily, backups: list{made("a", hour/2, v1alpha1.CopyPending)}, after: 16 * hour},
		"a copy runs":                                 {used: hour, backups: list{made("a", hour/2, v1alpha1.CopyRunning)}},
		"a copy that nobody has seen yet":             {used: hour, backups: list{made("a", 0, "")}},
		"failed just now":                             {used: hour, backups: list{made("a", time.Minute, v1alpha1.CopyFailed)}, after: 9 * time.Minute},
		"failed a while ago":                          {used: hour, backups: list{made("a", 11*time.Minute, v1alpha1.CopyFailed)}, cause: causeSleep},
		"failed twice":                                {used: 2 * hour, backups: list{made("a", hour, v1alpha1.CopyFailed), made("b", 11*time.Minute, v1alpha1.CopyFailed)}, after: 49 * time.Minute},
		"failed five times":                           {used: 200 * hour, backups: list{made("a", 90*hour, v1alpha1.CopyFailed), made("b", 80*hour, v1alpha1.CopyFailed), made("c", 70*hour, v1alpha1.CopyFailed), made("d", 60*hour, v1alpha1.CopyFailed), made("e", hour, v1alpha1.CopyFailed)}, after: 23 * hour},
		"failed before it was used again":             {used: time.Minute, backups: list{made("a", 2*time.Minute, v1alpha1.CopyFailed)}, cause: causeSleep},
		"given up just now":                           {used: hour, backups: list{made("a", 20*time.Second, v1alpha1.CopyCanceled)}, after: 40 * time.Second},
		"given up, and the game sleeps again":         {used: 30 * time.Second, backups: list{made("a", time.Minute, v1alpha1.CopyCanceled)}, cause: causeSleep},
		"given up twice, for a game that can't start": {used: hour, backups: list{made("a", 12*time.Minute, v1alpha1.CopyCanceled), made("b", 2*time.Minute, v1alpha1.CopyCanceled)}, after: 8 * time.Minute},
		"given up seven times":                        {used: 200 * hour, backups: list{made("a", 9*hour, v1alpha1.CopyCanceled), made("b", 8*hour, v1alpha1.CopyCanceled), made("c", 7*hour, v1alpha1.CopyCanceled), made("d", 6*hour, v1alpha1.CopyCanceled), made("e", 5*hour, v1alpha1.CopyCanceled), made("f", 4*hour, v1alpha1.CopyCanceled), made("g", hour, v1alpha1.CopyCanceled)}, after: 23 * hour},
		"given up, and failed since":                  {used: hour, backups: list{made("a", 20*time.Minute, v1alpha1.CopyCanceled), made("b", 15*time.Minute, v1alpha1.CopyFailed)}, after: 45 * time.Minute},
		"given up twice, and the game ran between":    {used: 3 * time.Minute, backups: list{made("a", 12*time.Minute, v1alpha1.CopyCanceled), made("b", 2*time.Minute, v1alpha1.CopyCanceled)}, cause: causeSleep},
		"of a time, given up, and the game ran since": {notOnSleep: true, schedule: daily, used: 10 * time.Second, backups: list{made("a", 5*time.Minute, v1alpha1.CopyCanceled), made("b", 20*time.Second, v1alpha1.CopyCanceled)}, cause: causeSchedule, after: 16 * hour},
		"a time has passed":                           {notOnSleep: true, schedule: daily, used: 99 * hour, cause: causeSchedule, after: 16 * hour},
		"a time has passed, and it runs":              {schedule: daily, used: 99 * hour, awake: true, cause: causeSchedule, after: 16 * hour},
		"copied at that time":                         {schedule: daily, used: 99 * hour, awake: true, backups: list{made("a", 7*hour, v1alpha1.CopyComplete)}, after: 16 * hour},
		"copied beside the game at that time":         {schedule: daily, used: 99 * hour, awake: true, backups: list{besideGame(made("a", 7*hour, v1alpha1.CopyComplete))}, after: 16 * hour},
		"many times have passed":                      {notOnSleep: true, schedule: daily, used: 99 * hour, backups: list{made("a", 90*hour, v1alpha1.CopyComplete)}, cause: causeSchedule, after: 16 * hour},
		"failed at that time":                         {notOnSleep: true, schedule: daily, used: 99 * hour, backups: list{made("a", 5*time.Minute, v1alpha1.CopyFailed)}, after: 5 * time.Minute},
		"a time before there was an owner":            {notOnSleep: true, schedule: daily, since: hour, used: hour, after: 16 * hour},
		"in another zone":                             {notOnSleep: true, schedule: &v1alpha1.BackupSchedule{Cron: "0 4 * * *", TimeZone: "Asia/Tokyo"}, since: 18 * hour, used: hour, cause: causeSchedule, after: 7 * hour},
		"a time that comes in many years":             {notOnSleep: true, schedule: &v1alpha1.BackupSchedule{Cron: "0 0 29 2 */7"}, used: hour, after: 24 * hour},
		"a schedule that can't be read":               {notOnSleep: true, schedule: &v1alpha1.BackupSchedule{Cron: "99 4 * * *"}, used: hour, problem: true},
		"one that can't be read, and it sleeps":       {schedule: &v1alpha1.BackupSchedule{Cron: "99 4 * * *"}, used: hour, problem: true, cause: causeSleep},
	} {
		n := need{server: "survival-0", spec: &v1alpha1.BackupSpec{Schedule: c.schedule, Keep: v1alpha1.BackupRetention{Last: cmp.Or(c.last, 7)}}, awake: c.awake, restoring: c.restoring, backups: c.backups}
		if c.notOnSleep {
			n.spec.OnSleep = new(false)
		}
		if c.used > 0 {
			n.usedAt = clock.Add(-c.used)
		}
		if n.since = clock.Add(-9999 * time.Hour); c.since > 0 {
			n.since = clock.Add(-c.since)
		}
		d := due(clock, n)
		if d.cause != c.cause || (d.name != "") != (c.cause != "") || d.requeueAfter.Duration() != c.after || (d.problem != nil) != c.problem {
			t.Errorf("%s: %q for %q, again after %s, %v; want %q after %s", name, d.name, d.cause, d.requeueAfter, d.problem, c.cause, c.after)
		}
		if d.name != "" && d.name != "survival-0-20261126120000" {
			t.Errorf("%s: it is named %s", name, d.name)
		}
	}
}

// A map renderer, say, writes to the disks of a game that sleeps for a week. The copies of that week leave those of
// the sleeps before, but for as many as they take the place of.
func TestCopiesThatSomethingWritesToLeaveEarlierOnes(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for _, last := range []int32{1, 2, 3, 7} {
		spec := &v1alpha1.BackupSpec{Keep: v1alpha1.BackupRetention{Last: last}}
		var backups []*v1alpha1.Backup
		for i := range last {
			backups = append(backups, changed(made(fmt.Sprintf("earlier-%d", i), time.Duration(i+2)*time.Hour, v1alpha1.CopyComplete)))
		}
		backups = append(backups, made("rest", 99*time.Hour, v1alpha1.CopyComplete))
		copied := 0
		for now := clock; now.Before(clock.Add(week)); now = now.Add(time.Minute) {
			d := due(now, need{server: "survival-0", spec: spec, usedAt: clock.Add(-time.Hour), backups: backups})
			if d.cause == "" {
				continue
			}
			copied++
			backups = append(backups, changed(made(fmt.Sprintf("copy-%d", copied), -now.Sub(clock), v1alpha1.CopyComplete)))
			gone := expired(spec.Keep, backups)
			backups = slices.DeleteFunc(backups, func(b *v1alpha1.Backup) bool { return slices.Contains(gone, b) })
		}
		earlier := 0
		for i := range last {
			if slices.Contains(names(backups), fmt.Sprintf("earlier-%d", i)) {
				earlier++
			}
		}
		if want := min(2, last); copied != int(want) || earlier != int(last-want) || !slices.Contains(names(backups), "rest") {
			t.Errorf("where %d stay, %d copies of one sleep leave %v", last, copied, names(backups))
		}
	}
}
