package condition

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAMessageIsCutBeforeTheAPIServerRefusesIt(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"x", "ü", "游"} {
		c := False("Ready", "Broken", "It says %s.", strings.Repeat(word, 40_000))
		if len(c.Message) > mostBytes || !utf8.ValidString(c.Message) || !strings.HasSuffix(c.Message, word+"...") {
			t.Errorf("%d bytes, which end with %q", len(c.Message), c.Message[len(c.Message)-8:])
		}
	}
	if c := True("Ready", "OK", "%s", strings.Repeat("x", mostBytes)); len(c.Message) != mostBytes {
		t.Errorf("a message of %d bytes is cut to %d", mostBytes, len(c.Message))
	}
}
