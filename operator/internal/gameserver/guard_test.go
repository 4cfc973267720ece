package gameserver

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Of a Fleet's Servers that go together one looks at their namespace, after the others.
func TestANamespaceIsLookedAtOnceWhenItsServersGo(t *testing.T) {
	var e emptied
	key := func(namespace, name string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	waiting := 0
	for _, namespace := range []string{"games", "others"} {
		for i := range 100 {
			now, after := e.look(key(namespace, fmt.Sprint("lobby-", i)))
			if now {
				t.Errorf("Server %d of %s looks at once", i, namespace)
			}
			if after > 0 {
				waiting++
			}
		}
	}
	if waiting != 2 {
		t.Errorf("%d Servers of two namespaces are to look, want one of each", waiting)
	}
	if now, _ := e.look(key("games", "lobby-0")); !now {
		t.Error("the one that was to look doesn't")
	}
	if now, after := e.look(key("games", "lobby-5")); now || after != emptiedAfter {
		t.Errorf("one that goes after that look looks now: %t, after %s", now, after)
	}
}
