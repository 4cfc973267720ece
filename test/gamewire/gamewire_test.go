package gamewire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAReplyReadsBackAsWritten(t *testing.T) {
	want := Reply{
		Number: 7, Payload: `quotes " and \ too`, Server: "lobby-0", Boot: "b", Started: 1, Listening: 2, FirstByte: 3,
		Peer: "10.0.0.1:2", Local: "10.0.0.2:3", Messages: 4, Bytes: 5,
	}
	b, err := AppendReply(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsRune(b, '\n') {
		t.Errorf("reply has a line end: %q", b)
	}
	got, err := ParseReply(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	for name, message := range map[string]string{
		"empty":              "",
		"no number":          "hello world",
		"no space":           "12",
		"negative":           "-1 x",
		"larger than uint64": "18446744073709551616 x",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseMessage([]byte(message)); !errors.Is(err, ErrMalformed) {
				t.Errorf("error = %v, want ErrMalformed", err)
			}
		})
	}
}

func FuzzParseMessage(f *testing.F) {
	for _, seed := range []string{"1 hello", "", " ", "18446744073709551615 x", "01 a"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		again, err := ParseMessage(AppendMessage(nil, m))
		if err != nil || again != m {
			t.Errorf("%q reads as %+v, and written again as %+v, %v", b, m, again, err)
		}
	})
}
