package serverfiles

import (
	"strings"
	"testing"

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
	}{
		"no game":                                {on("a"), nil, disks.SharedByNobody, "", false},
		"on one node":                            {on("a"), &gamePod{node: "a"}, disks.SharedByNode, "", false},
		"on two nodes":                           {on("a"), &gamePod{node: "b"}, disks.SharedByNode, "f", false},
		"on two nodes, which may both have it":   {on("a"), &gamePod{node: "b"}, disks.SharedByAll, "", false},
		"on one node, one may have it":           {on("a"), &gamePod{node: "a"}, disks.SharedByNobody, "f", false},
		"the files have no node yet":             {on(""), &gamePod{node: "b"}, disks.SharedByNode, "", false},
		"the files end already":                  {[]filePod{{name: "f", node: "a", ending: true}}, &gamePod{node: "b"}, disks.SharedByNode, "", false},
		"the game hasn't been looked at":         {on("a"), &gamePod{}, disks.SharedByNobody, "", false},
		"the game finds no node":                 {on("a"), &gamePod{unschedulable: true}, disks.SharedByNode, "f", true},
		"the game finds no node for it alone":    {on("a"), &gamePod{unschedulable: true}, disks.SharedByNobody, "f", true},
		"neither finds a node":                   {on(""), &gamePod{unschedulable: true}, disks.SharedByNobody, "", false},
		"the game finds no node, and all may":    {on("a"), &gamePod{unschedulable: true}, disks.SharedByAll, "", false},
		"the files of before end, one is beside": {[]filePod{{name: "e", node: "a", ending: true}, {name: "f", node: "b"}}, &gamePod{node: "b"}, disks.SharedByNode, "", false},
		"one of two is elsewhere":                {[]filePod{{name: "e", node: "b"}, {name: "f", node: "a"}}, &gamePod{node: "b"}, disks.SharedByNode, "f", false},
	} {
		t.Run(name, func(t *testing.T) {
			e := planEnding(c.files, c.game, c.shared)
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
		if e := planEnding([]filePod{filePodOf(pod)}, &gamePod{node: "b"}, disks.SharedByNode); (len(e.pods) > 0) != c.ends {
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
