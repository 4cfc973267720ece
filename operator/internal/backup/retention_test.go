package backup

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// byHand makes a Backup a person's.
func byHand(b *v1alpha1.Backup) *v1alpha1.Backup { b.Labels = nil; return b }

func names(list []*v1alpha1.Backup) []string {
	var all []string
	for _, b := range list {
		all = append(all, b.Name)
	}
	return all
}

func TestWhichBackupsGo(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	complete := func(name string, ago time.Duration) *v1alpha1.Backup { return made(name, ago, v1alpha1.CopyComplete) }
	type list = []*v1alpha1.Backup
	// Each day at noon and at 1 o'clock; clock is a Thursday.
	var twoWeeks list
	for i := range 14 {
		ago := time.Duration(i) * day
		twoWeeks = append(twoWeeks, complete("noon"+strconv.Itoa(i), ago), complete("night"+strconv.Itoa(i), ago+11*hour))
	}
	deleting := complete("z", 5*hour)
	deleting.DeletionTimestamp = &metav1.Time{Time: clock}
	for name, c := range map[string]struct {
		keep    v1alpha1.BackupRetention
		backups list
		want    []string
	}{
		"none":                            {},
		"as many as stay":                 {v1alpha1.BackupRetention{Last: 2}, list{complete("a", hour), complete("b", 2*hour)}, nil},
		"the oldest go first":             {v1alpha1.BackupRetention{Last: 1}, list{complete("b", 2*hour), complete("a", hour), complete("c", 3*hour)}, []string{"c", "b"}},
		"the youngest always stays":       {v1alpha1.BackupRetention{}, list{complete("a", 9999*hour)}, nil},
		"torn ones don't push it out":     {v1alpha1.BackupRetention{Last: 2}, list{besideGame(complete("t", hour)), besideGame(complete("u", 2*hour)), besideGame(complete("v", 3*hour)), complete("a", 9*hour), complete("b", 10*hour)}, []string{"b", "v"}},
		"failures don't push it out":      {v1alpha1.BackupRetention{Last: 1}, list{complete("a", 9*hour), made("f", hour, v1alpha1.CopyFailed)}, nil},
		"a person's don't go or count":    {v1alpha1.BackupRetention{Last: 1}, list{byHand(complete("h", hour)), complete("a", 2*hour), complete("b", 3*hour)}, []string{"b"}},
		"those that wait and run stay":    {v1alpha1.BackupRetention{Last: 1}, list{made("p", 9*hour, v1alpha1.CopyPending), made("r", 8*hour, v1alpha1.CopyRunning), made("n", 8*hour, ""), complete("a", hour)}, nil},
		"one that goes already":           {v1alpha1.BackupRetention{Last: 1}, list{deleting, complete("a", hour)}, nil},
		"old failures and given up ones":  {v1alpha1.BackupRetention{Last: 1}, list{made("1", hour, v1alpha1.CopyFailed), made("2", 2*hour, v1alpha1.CopyCanceled), made("3", 3*hour, v1alpha1.CopyFailed), made("4", 4*hour, v1alpha1.CopyFailed), made("5", 5*hour, v1alpha1.CopyFailed), made("6", 6*hour, v1alpha1.CopyCanceled), byHand(made("7", 7*hour, v1alpha1.CopyFailed))}, []string{"6"}},
		"days without one don't count":    {v1alpha1.BackupRetention{Last: 1, Daily: 2}, list{complete("a", 0), complete("b", 10*day), complete("c", 11*day)}, []string{"c"}},
		"of a day the last one":           {v1alpha1.BackupRetention{Last: 1, Daily: 2}, twoWeeks[:6], []string{"night2", "noon2", "night1", "night0"}},
		"one for several numbers is once": {v1alpha1.BackupRetention{Last: 2, Daily: 1, Weekly: 1}, twoWeeks[:4], []string{"night1", "noon1"}},
		// Noon of Sunday is four days ago, and of Sunday the week before eleven.
		"of a week the last one": {v1alpha1.BackupRetention{Last: 1, Weekly: 3}, twoWeeks[6:], []string{
			"night13", "noon13", "night12", "noon12", "night11", "night10", "noon10", "night9", "noon9", "night8", "noon8", "night7", "noon7",
			"night6", "noon6", "night5", "noon5", "night4", "night3",
		}},
	} {
		if diff := cmp.Diff(c.want, names(expired(c.keep, c.backups))); diff != "" {
			t.Errorf("%s: those that go (-want +got):\n%s", name, diff)
		}
	}
}

// Whatever the numbers are: nothing that people made goes, the youngest good one stays, and the youngest of
// disks at rest, what stays doesn't go in the next pass, and there is an end to how many stay.
func TestWhatStaysStays(t *testing.T) {
	random := rand.New(rand.NewPCG(24, 1))
	phases := []v1alpha1.CopyPhase{v1alpha1.CopyComplete, v1alpha1.CopyComplete, v1alpha1.CopyComplete, v1alpha1.CopyFailed, v1alpha1.CopyCanceled, v1alpha1.CopyRunning, ""}
	for range 500 {
		keep := v1alpha1.BackupRetention{Last: random.Int32N(5), Daily: random.Int32N(4), Weekly: random.Int32N(4)}
		var backups []*v1alpha1.Backup
		var youngest, atRest *v1alpha1.Backup
		for i := range random.IntN(60) {
			b := made(strconv.Itoa(i), time.Duration(random.IntN(2000))*time.Hour, phases[random.IntN(len(phases))])
			b.Status.AtRest = random.IntN(3) == 0
			if random.IntN(5) == 0 {
				byHand(b)
			} else if b.Status.Phase == v1alpha1.CopyComplete {
				if youngest == nil || takenAt(b).After(takenAt(youngest)) {
					youngest = b
				}
				if b.Status.AtRest && (atRest == nil || takenAt(b).After(takenAt(atRest))) {
					atRest = b
				}
			}
			backups = append(backups, b)
		}
		gone := map[*v1alpha1.Backup]bool{}
		for _, b := range expired(keep, backups) {
			gone[b] = true
			if b.Labels == nil || !ended(b) {
				t.Fatalf("%+v goes of %v", b, names(backups))
			}
		}
		// Of two that are as young either may stay.
		stays := func(atRest bool, at time.Time) bool {
			return slices.ContainsFunc(backups, func(b *v1alpha1.Backup) bool {
				return !gone[b] && b.Labels != nil && b.Status.Phase == v1alpha1.CopyComplete && (b.Status.AtRest || !atRest) && takenAt(b).Equal(at)
			})
		}
		if youngest != nil && !stays(false, takenAt(youngest)) || atRest != nil && !stays(true, takenAt(atRest)) {
			t.Fatalf("with %+v the youngest, %+v, or the youngest at rest, %+v, goes", keep, youngest, atRest)
		}
		var left []*v1alpha1.Backup
		count := 0
		for _, b := range backups {
			if !gone[b] {
				left = append(left, b)
				if b.Labels != nil && ended(b) {
					count++
				}
			}
		}
		if more := expired(keep, left); len(more) > 0 {
			t.Fatalf("with %+v, %v go in the next pass of %v", keep, names(more), names(left))
		}
		if most := max(int(keep.Last), 1) + 1 + int(keep.Daily+keep.Weekly) + keptUnfinished; count > most {
			t.Fatalf("with %+v %d stay, more than %d", keep, count, most)
		}
	}
}

// worldSince is the claim of survival-0's disk, which was made so long ago.
func worldSince(ago time.Duration) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "survival-0-world", CreationTimestamp: metav1.NewTime(clock.Add(-ago)),
	}}
}

// A world that is deleted by mistake has a successor, which sleeps more often than copies are kept.
func TestCopiesOfAnEarlierDiskStay(t *testing.T) {
	for name, c := range map[string]struct {
		disk *corev1.PersistentVolumeClaim
		want []string
	}{
		"the disk is new":      {worldSince(150 * time.Minute), []string{"earlier", "failed", "youngest"}},
		"it is the same still": {worldSince(24 * time.Hour), []string{"failed", "youngest"}},
		"it is gone":           {nil, []string{"failed", "youngest"}},
	} {
		t.Run(name, func(t *testing.T) {
			var backups []*v1alpha1.Backup
			var objects []client.Object
			for i, name := range []string{"youngest", "second", "third", "earlier", "earliest"} {
				backups = append(backups, made(name, time.Duration(i)*time.Hour, v1alpha1.CopyComplete))
			}
			backups = append(backups, made("failed", 10*time.Hour, v1alpha1.CopyFailed))
			for _, b := range backups {
				b.UID = types.UID(b.Name)
				objects = append(objects, b)
			}
			if c.disk != nil {
				objects = append(objects, c.disk)
			}
			cluster := clusterWith(t, objects...)
			p := &Planner{Client: cluster, Live: cluster}
			if err := p.expire(t.Context(), setWith(func(s *v1alpha1.BackupSpec) { s.Keep.Last = 1 }), backups); err != nil {
				t.Fatal(err)
			}
			var left v1alpha1.BackupList
			if err := cluster.List(t.Context(), &left); err != nil {
				t.Fatal(err)
			}
			got := make([]string, 0, len(left.Items))
			for i := range left.Items {
				got = append(got, left.Items[i].Name)
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("those that stay are %v, want %v", got, c.want)
			}
		})
	}
}
