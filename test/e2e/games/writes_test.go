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

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/dev/devcluster/audit"
	"dormouse.dev/dormouse/test/e2e/suite"
)

const (
	// maxWrites is how many calls that write a Server may cost from its creation
	// until it is Ready: what makes it and its Pod, and three of its status.
	maxWrites = 5
	// maxWritesOut is how many it may cost to go where nobody plays: the Server's and its Pod's
	// deletion, and the finalizer.
	maxWritesOut = 3
	// maxRefused is how many more may be refused because something was written in
	// between.
	maxRefused = 2
	// silence is how long nothing is written before a Fleet's start counts as over.
	silence = 3 * time.Second
)

// tells are the ages at which a Server that isn't Ready yet tells something more: that
// it waits for a node, that its game starts, and what its Pod does.
var tells = []time.Duration{3 * time.Second, 5 * time.Second, 10 * time.Second}

// TestAServerCostsFewWrites counts what our programs wrote, by the API server's
// own record, from a Fleet's creation until a while after all its Servers are
// Ready, and then until they are gone. Calls that were refused wrote nothing, and
// are counted apart. Nothing runs beside it, so that the starts are short.
func TestAServerCostsFewWrites(t *testing.T) {
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
	of := writesOf(ctx, t, ns, since, servers)
	for name := range servers {
		found := count(of[name])
		if found["create servers"] != 1 || found["create pods"] != 1 {
			t.Errorf("Server %s was made by %d calls and its Pod by %d, want one of each: the record isn't whole",
				name, found["create servers"], found["create pods"])
		}
		refused, took, most := refusals(of[name]), startOf(servers[name]), maxWrites
		for _, age := range tells {
			if took >= age {
				most++
			}
		}
		if n := len(of[name]) - refused; n > most {
			t.Errorf("Server %s, which was Ready after %s, cost %d writes, want %d at most:\n%s", name, took, n, most, calls(of[name]))
		}
		// The status is written beside the reports, and one of both may find that it
		// was too late and look again: that is no write, and mustn't be a habit.
		if refused > maxRefused {
			t.Errorf("%d calls about Server %s were refused, want %d at most", refused, name, maxRefused)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if s := servers[name]; s != nil {
			t.Logf("%s was Ready after %s", name, startOf(s))
		}
		t.Logf("%s: %d\n%s", cmp.Or(name, "the Fleet and the namespace"), len(of[name]), table(count(of[name])))
	}

	since = time.Now()
	suite.ScaleFleet(ctx, t, key, 0)
	empty := func(f *v1alpha1.Fleet) bool { return f.Status.Replicas == 0 && f.Status.DrainingReplicas == 0 }
	if _, err := suite.Cluster.WaitFleet(ctx, key, "all Servers gone", empty); err != nil {
		t.Fatal(err)
	}
	of = writesOf(ctx, t, ns, since, servers)
	for name := range servers {
		found, refused := count(of[name]), refusals(of[name])
		if found["delete servers"] != 1 || found["delete pods"] != 1 {
			t.Errorf("Server %s was deleted by %d calls and its Pod by %d, want one of each: the record isn't whole",
				name, found["delete servers"], found["delete pods"])
		}
		if n := len(of[name]) - refused; n > maxWritesOut || refused > maxRefused {
			t.Errorf("Server %s went with %d writes and %d refused calls, want %d and %d at most:\n%s",
				name, n, refused, maxWritesOut, maxRefused, calls(of[name]))
		}
	}
}

// writesOf are the calls of our programs that write in a namespace, by the Server that they are
// about.
func writesOf[T any](ctx context.Context, t *testing.T, namespace string, since time.Time, servers map[string]T) map[string][]audit.Entry {
	t.Helper()
	all, err := writes(ctx, namespace, since)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string][]audit.Entry{}
	for _, e := range all {
		of[subject(e, servers)] = append(of[subject(e, servers)], e)
	}
	t.Logf("all: %d\n%s", len(all), table(count(all)))
	return of
}

// refusals is how many calls were refused.
func refusals(entries []audit.Entry) (n int) {
	for _, e := range entries {
		if e.Code >= 300 {
			n++
		}
	}
	return n
}

// startOf is how long a Server took to be Ready, a second more at most: its times are
// whole seconds.
func startOf(s *v1alpha1.Server) time.Duration {
	c := meta.FindStatusCondition(s.Status.Conditions, conditions.Ready)
	if c == nil || c.Status != metav1.ConditionTrue {
		return 0
	}
	return c.LastTransitionTime.Sub(s.CreationTimestamp.Time) + time.Second
}

// writes are the calls of our programs that write in a namespace, up to a time in
// which there are none.
func writes(ctx context.Context, namespace string, since time.Time) ([]audit.Entry, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		all, err := suite.Cluster.Cluster.Audit(since)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(e audit.Entry) bool {
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
func subject[T any](e audit.Entry, servers map[string]T) string {
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

// calls lists calls, each with its time and its account.
func calls(entries []audit.Entry) string {
	var text strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&text, "%s %s %s %s %s %d\n", e.Received.Format("05.000"), e.User, e.Verb, e.Path, e.Subresource, e.Code)
	}
	return text.String()
}

// count counts calls by what they do.
func count(entries []audit.Entry) map[string]int {
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
