package serverfiles

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/disks"
)

func TestTheGameWins(t *testing.T) {
	on := func(node string) []filePod { return []filePod{{name: "f", node: node}} }
	for name, c := range map[string]struct {
		files  []filePod
		game   *gamePod
		shared disks.Sharing
		ends   string
		sleeps bool
		had    room
	}{
		"no game":                                {on("a"), nil, disks.SharedByNobody, "", false, room{}},
		"on one node":                            {on("a"), &gamePod{node: "a"}, disks.SharedByNode, "", false, room{}},
		"on two nodes":                           {on("a"), &gamePod{node: "b"}, disks.SharedByNode, "f", false, room{}},
		"on two nodes, which may both have it":   {on("a"), &gamePod{node: "b"}, disks.SharedByAll, "", false, room{}},
		"on one node, one may have it":           {on("a"), &gamePod{node: "a"}, disks.SharedByNobody, "f", false, room{}},
		"the files have no node yet":             {on(""), &gamePod{node: "b"}, disks.SharedByNode, "", false, room{}},
		"the files end already":                  {[]filePod{{name: "f", node: "a", ending: true}}, &gamePod{node: "b"}, disks.SharedByNode, "", false, room{}},
		"the game hasn't been looked at":         {on("a"), &gamePod{}, disks.SharedByNobody, "", false, room{}},
		"the game finds no node":                 {on("a"), &gamePod{uid: "g", unschedulable: true}, disks.SharedByNode, "f", true, room{}},
		"the game finds no node for it alone":    {on("a"), &gamePod{uid: "g", unschedulable: true}, disks.SharedByNobody, "f", true, room{}},
		"the game found none without them, too":  {on("a"), &gamePod{uid: "g", unschedulable: true}, disks.SharedByNode, "", false, room{game: "g"}},
		"the game before found none":             {on("a"), &gamePod{uid: "g", unschedulable: true}, disks.SharedByNode, "f", true, room{game: "e"}},
		"neither finds a node":                   {on(""), &gamePod{uid: "g", unschedulable: true}, disks.SharedByNobody, "", false, room{}},
		"the game finds no node, and all may":    {on("a"), &gamePod{uid: "g", unschedulable: true}, disks.SharedByAll, "", false, room{}},
		"the files of before end, one is beside": {[]filePod{{name: "e", node: "a", ending: true}, {name: "f", node: "b"}}, &gamePod{node: "b"}, disks.SharedByNode, "", false, room{}},
		"one of two is elsewhere":                {[]filePod{{name: "e", node: "b"}, {name: "f", node: "a"}}, &gamePod{node: "b"}, disks.SharedByNode, "f", false, room{}},
	} {
		t.Run(name, func(t *testing.T) {
			e := planEnding(c.files, c.game, c.shared, c.had)
			var names []string
			for _, p := range e.pods {
				names = append(names, p.name)
			}
			if got := strings.Join(names, " "); got != c.ends || e.sleep != c.sleeps || (e.why != "") != (c.ends != "") {
				t.Errorf("it ends %q, sleeps %t, because %q; want %q, %t", got, e.sleep, e.why, c.ends, c.sleeps)
			}
		})
	}
}

// Each connection wakes the files of a game that waits for a larger node.
func TestFilesAreServedWhereTheGameMissesSomethingElse(t *testing.T) {
	now := time.Now()
	game, gated, serving := &gamePod{uid: "g", unschedulable: true}, []filePod{{name: "f", gated: true}}, []filePod{{name: "f", node: "a"}}
	r := room{}.after(serving, game, now)
	if r != (room{}) {
		t.Error("while files have the disks the game has room")
	}
	if r = r.after([]filePod{{name: "f", node: "a", ending: true}}, game, now); r != (room{}) {
		t.Error("while the files end the game has room")
	}
	if r = r.after(gated, game, now); !r.shut(game, disks.SharedByNode, now.Add(roomTime-1)) {
		t.Error("the scheduler has no time to try without the files")
	}
	now = now.Add(roomTime)
	if r = r.after(gated, game, now); r.shut(game, disks.SharedByNode, now) || !r.shut(game, disks.SharedByNobody, now) {
		t.Error("it doesn't go by who may have the disk")
	}
	if r = r.after(serving, game, now); len(planEnding(serving, game, disks.SharedByNode, r).pods) > 0 {
		t.Error("the files end, which aren't in the way")
	}
	up := &gamePod{uid: "g", node: "a"}
	if r = r.after(serving, up, now); r != (room{}) || r.shut(up, disks.SharedByNode, now) || r.shut(nil, disks.SharedByNode, now) {
		t.Error("the files of a game that is up, or asleep, aren't served")
	}
	if r.shut(game, disks.SharedByAll, now) {
		t.Error("files wait for a game that can have the disks beside them")
	}
}

// A Pod that drains for a copy has an hour, and the game is on another node.
func TestTheGameDoesNotWaitForADrain(t *testing.T) {
	for name, c := range map[string]struct {
		deleted bool
		grace   *int64
		ends    bool
	}{
		"there":                  {false, nil, true},
		"about to be gone":       {true, new(int64(30)), false},
		"drains for a copy":      {true, new(int64(3600)), true},
		"deleted, without grace": {true, nil, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "f", DeletionGracePeriodSeconds: c.grace}, Spec: corev1.PodSpec{NodeName: "a"}}
		if c.deleted {
			pod.DeletionTimestamp = new(metav1.Now())
		}
		if e := planEnding([]filePod{filePodOf(pod)}, &gamePod{node: "b"}, disks.SharedByNode, room{}); (len(e.pods) > 0) != c.ends {
			t.Errorf("%s: it ends %v", name, e.pods)
		}
	}
}

func TestFilesWaitForADiskThatOnlyTheGameMayHave(t *testing.T) {
	pending := []filePod{{name: "f"}}
	for name, c := range map[string]struct {
		files  []filePod
		game   *gamePod
		shared disks.Sharing
		want   bool
	}{
		"the game has it":    {pending, &gamePod{node: "a"}, disks.SharedByNobody, true},
		"nobody has it":      {pending, nil, disks.SharedByNobody, false},
		"the node has it":    {pending, &gamePod{node: "a"}, disks.SharedByNode, false},
		"no Pod waits":       {nil, &gamePod{node: "a"}, disks.SharedByNobody, false},
		"one that waits end": {[]filePod{{name: "f", ending: true}}, &gamePod{node: "a"}, disks.SharedByNobody, false},
	} {
		if got := waits(c.files, c.game, c.shared); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestTheConditionSaysWhereTheFilesAre(t *testing.T) {
	ok := condition.True(conditions.FilesServed, reasons.OK, "")
	bad := problem(reasons.NameTaken, "Taken.")
	for name, c := range map[string]struct {
		all  []served
		want metav1.Condition
	}{
		"a Server":     {[]served{{"a-files", ok}}, condition.True(conditions.FilesServed, reasons.OK, "SFTP on port 22 of Service a-files.")},
		"two places":   {[]served{{"a-0-files", ok}, {"a-1-files", ok}}, condition.True(conditions.FilesServed, reasons.OK, "SFTP on port 22 of the Services a-0-files, a-1-files.")},
		"one is wrong": {[]served{{"a-0-files", ok}, {"a-1-files", bad}, {"a-2-files", ok}}, bad},
	} {
		if diff := cmp.Diff(c.want, summary(c.all)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
