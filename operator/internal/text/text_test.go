package text

import (
	"strings"
	"testing"
)

func TestWhatIsQuotedIsBounded(t *testing.T) {
	if got, want := Bounded(strings.Repeat("ä", 301)), strings.Repeat("ä", 300)+"…"; got != want {
		t.Errorf("of 301 characters %d are left", len([]rune(got)))
	}
	if got := Bounded("short"); got != "short" {
		t.Errorf("a short text became %q", got)
	}
}

func TestATextIsNeverCutWithinACharacter(t *testing.T) {
	if got := Cut("aä", 2, "…"); got != "a…" {
		t.Errorf("it became %q", got)
	}
}

func TestAFewOfManyAreNamed(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	for n, want := range map[int]string{0: "", 2: "a, b", 5: "a, b, c, d, e", 7: "a, b, c, d, e and 2 more"} {
		if got := Some(names[:n]); got != want {
			t.Errorf("of %d: %q, want %q", n, got, want)
		}
	}
}
