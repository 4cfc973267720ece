package games

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/internal/devcluster"
	"dormouse.dev/dormouse/test/e2e/suite"
)

const (
	// maxWrites is how many calls that write a Server may cost from its creation
	// until it is Ready.
	maxWrites = 6
	// maxRefused is how many more may be refused because something was written in
	// between.
	maxRefused = 2
	// silence is how long nothing is written before a Fleet's start counts as over.
	silence = 3 * time.Second
)

// TestAServerCostsFewWrites counts what our programs wrote, by the API server's
// own record, from a Fleet's creation until a while after all its Servers are
// Ready. Calls that were refused wrote nothing, and are counted apart.
func TestAServerCostsFewWrites(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	key := types.NamespacedName{Namespace: ns, Name: "lobbies"}
	since := time.Now()
	if _, err := suite.Cluster.CreateFleet(ctx, ns, key.Name, 5, suite.Cluster.ServerSpec()); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitFleet(ctx, key, "5 ready", ready(5)); err != nil {
		t.Fatal(err)
	}
	servers, err := suite.Cluster.Servers(ctx, ns, key.Name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := writes(ctx, ns, since)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string][]devcluster.AuditEntry{}
	for _, e := range all {
		of[subject(e, servers)] = append(of[subject(e, servers)], e)
	}
	for name := range servers {
		found := count(of[name])
		if found["create servers"] != 1 || found["create pods"] != 1 {
			t.Errorf("Server %s was made by %d calls and its Pod by %d, want one of each: the record isn't whole",
				name, found["create servers"], found["create pods"])
		}
		refused := 0
		for _, e := range of[name] {
			if e.Code >= 300 {
				refused++
			}
		}
		if n := len(of[name]) - refused; n > maxWrites {
			t.Errorf("Server %s cost %d writes, want %d at most", name, n, maxWrites)
		}
		// The status is written beside the reports, and one of both may find that it
		// was too late and look again: that is no write, and mustn't be a habit.
		if refused > maxRefused {
			t.Errorf("%d calls about Server %s were refused, want %d at most", refused, name, maxRefused)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		t.Logf("%s: %d\n%s", cmp.Or(name, "the Fleet and the namespace"), len(of[name]), table(count(of[name])))
	}
	t.Logf("all: %d\n%s", len(all), table(count(all)))
}

// writes are the calls of our programs that write in a namespace, up to a time in
// which there are none.
func writes(ctx context.Context, namespace string, since time.Time) ([]devcluster.AuditEntry, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		all, err := suite.Cluster.Cluster.Audit(since)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(e devcluster.AuditEntry) bool {
			return e.Namespace != namespace || e.Verb == "get" || e.Verb == "list" || e.Verb == "watch"
		})
		if len(all) > 0 && time.Since(all[len(all)-1].Received) > silence {
			return all, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until nothing is written in %s: %w; there were %d writes", namespace, ctx.Err(), len(all))
		case <-tick.C:
		}
	}
}

// subject is the Server that a call is about: by its name, its Pod's, or that of
// an event. It is empty for a call that is about none.
func subject[T any](e devcluster.AuditEntry, servers map[string]T) string {
	name := e.Name
	if e.Resource == "events" {
		// An event is named like what it is about, with a dot and a number.
		name, _, _ = strings.Cut(name, ".")
	}
	if _, ok := servers[name]; ok {
		return name
	}
	return ""
}

// count counts calls by what they do.
func count(entries []devcluster.AuditEntry) map[string]int {
	counts := map[string]int{}
	for _, e := range entries {
		what := e.Verb + " " + e.Resource
		if e.Subresource != "" {
			what += "/" + e.Subresource
		}
		if e.Code >= 300 {
			what += fmt.Sprintf(" (answered %d)", e.Code)
		}
		counts[what]++
	}
	return counts
}

func table(counts map[string]int) string {
	var text strings.Builder
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&text, "%5d %s\n", counts[what], what)
	}
	return text.String()
}
