package fleet

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/fleet/serverbuilder"
	"dormouse.dev/dormouse/operator/internal/pending"
)

// woken is a Fleet of a generation that is to have three Servers.
func woken(generation int64) *v1alpha1.Fleet {
	return &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Name: "lobby", UID: "u1", Generation: generation},
		Spec:       v1alpha1.FleetSpec{Replicas: new(int32(3))},
	}
}

// Whoever makes them, the first Servers have the names that a wake gives them.
func TestTheFirstServersHaveTheNamesThatAWakeGives(t *testing.T) {
	t.Parallel()
	now, f := time.Now(), woken(5)
	var b firstServers
	b.see(now, f, nil)
	n := b.namer(f, nil)
	var given []string
	for i := range int32(3) {
		name, _, first := n.one()
		if want := serverbuilder.FirstName(f, i); name != want || !first {
			t.Errorf("Server %d is named %s (first: %v), want %s", i, name, first, want)
		}
		given = append(given, name)
	}
	if name, _, first := n.one(); first {
		t.Errorf("a fourth of three is named %s as a wake would", name)
	}
	// The second was replaced: its name isn't given again, nor are those of the others.
	b.see(now, f, []server{{name: given[0]}, {name: given[1]}, {name: given[2]}})
	b.see(now, f, []server{{name: given[0]}, {name: given[2]}})
	if name, _, first := b.namer(f, nil).one(); first {
		t.Errorf("the Server that replaces another is named %s, as one of the first", name)
	}
	if serverbuilder.FirstName(woken(6), 0) == given[0] {
		t.Error("two generations give the same name")
	}
}

func TestServersHaveAnyNameOnceAFleetHasBegun(t *testing.T) {
	t.Parallel()
	now, f := time.Now(), woken(5)
	for name, b := range map[string]func() *firstServers{
		"it had one": func() *firstServers {
			var b firstServers
			b.see(now, f, []server{{name: "lobby-other"}})
			return &b
		},
		"it began a while ago": func() *firstServers {
			var b firstServers
			b.see(now.Add(-alignTime), f, nil)
			b.see(now, f, nil)
			return &b
		},
	} {
		if name2, _, first := b().namer(f, nil).one(); first {
			t.Errorf("%s: a Server is named %s as a wake would", name, name2)
		}
	}
	// One that the wake has made for this generation says nothing against it.
	var b firstServers
	b.see(now, f, []server{{name: serverbuilder.FirstName(f, 1), ownerGeneration: 5}})
	if name, _, first := b.namer(f, nil).one(); !first || name != serverbuilder.FirstName(f, 0) {
		t.Errorf("beside a Server of the wake the next is named %s, want %s", name, serverbuilder.FirstName(f, 0))
	}
}

// The Servers of a wake may show before the Fleet that asks for them.
func TestACacheThatIsBehindIsWaitedFor(t *testing.T) {
	t.Parallel()
	now, f := time.Now(), woken(4)
	var b firstServers
	ahead := []server{{name: "lobby-new", ownerGeneration: 5}}
	if !b.see(now, f, ahead) {
		t.Error("a Fleet that is older than its Server is believed")
	}
	later := now.Add(alignTime)
	if b.see(later, f, ahead) {
		t.Error("what never comes is waited for")
	}
	if b.see(later, woken(5), ahead) || b.lag != (pending.Lag{}) {
		t.Error("the Fleet that was waited for isn't believed")
	}
}
