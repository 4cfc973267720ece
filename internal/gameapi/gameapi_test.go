package gameapi

import (
	"net/url"
	"strings"
	"testing"
)

// A code says whose it is, whatever the names, fits the bounds and needs no quoting in a URL.
func TestACodeSaysWhoseItIs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 63)
	for _, server := range []string{"lobby", "lobby.eu-1", long} {
		code := NewCode(long, server)
		if namespace, name, ok := Server(code); !ok || namespace != long || name != server {
			t.Errorf("of %s: %q, %q, %t", server, namespace, name, ok)
		}
		if len(code) > MaxCodeBytes || url.QueryEscape(code) != code {
			t.Errorf("%q has %d bytes and is %q in a URL", code, len(code), url.QueryEscape(code))
		}
		if other := NewCode(long, server); other == code || Same(other, code) || !Same(code, strings.Clone(code)) {
			t.Errorf("two codes are %q and %q", code, other)
		}
	}
}

func TestTextThatIsNoCodeIsNobodys(t *testing.T) {
	t.Parallel()
	code := NewCode("games", "lobby")
	secret, whose, _ := strings.Cut(code, ".")
	for _, text := range []string{"", ".", secret, secret + ".", "." + whose, "short." + whose, secret + ".!", secret + "." + encoding.EncodeToString([]byte("/lobby")), code + strings.Repeat("a", MaxCodeBytes)} {
		if namespace, name, ok := Server(text); ok {
			t.Errorf("%q is taken for that of %s/%s", text, namespace, name)
		}
	}
}

func FuzzServer(f *testing.F) {
	f.Add(NewCode("games", "lobby"))
	f.Add("a.b")
	f.Fuzz(func(t *testing.T, code string) {
		if namespace, name, ok := Server(code); ok && (namespace == "" || name == "" || strings.Contains(namespace, "/")) {
			t.Errorf("%q is of %q, %q", code, namespace, name)
		}
	})
}
