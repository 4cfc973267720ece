package tls

import (
	"bytes"
	"context"
	stdtls "crypto/tls"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/test/hexfile"
)

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	b, err := hexfile.Read(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// names are what the recorded clients ask for, as they sent it.
var names = map[string]string{
	"openssl": "Play.Example.com", "openssl_noname": "", "openssl_tls1": "play.example.com", "openssl_split": "play.example.com",
	"curl": "play.example.com", "go": "play.example.com",
}

// u16 puts the length before a text, in two bytes.
func u16(text string) string { return string([]byte{byte(len(text) >> 8), byte(len(text))}) + text }

// records puts a message into records of at most size bytes.
func records(message string, size int) []byte {
	var b []byte
	for len(message) > 0 {
		n := min(size, len(message))
		b = append(b, "\x16\x03\x01"+u16(message[:n])...)
		message = message[n:]
	}
	return b
}

// hello writes one with extensions, as they are sent; "" is a hello without.
func hello(extensions string) string {
	body := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + u16("\x13\x01") + "\x01\x00"
	if extensions != "" {
		body += u16(extensions)
	}
	return "\x01\x00" + u16(body)
}

func extension(kind byte, data string) string { return string([]byte{0, kind}) + u16(data) }

// named is the extension that names hosts.
func named(hosts ...string) string {
	var list strings.Builder
	for _, h := range hosts {
		list.WriteString("\x00" + u16(h))
	}
	return extension(0, u16(list.String()))
}

func TestTheHelloTellsTheName(t *testing.T) {
	for file, want := range names {
		got, err := parseHello(recorded(t, file))
		if err != nil || string(got) != want {
			t.Errorf("%s asks for %q, %v; want %q", file, got, err, want)
		}
	}
	whole := hello(extension(10, "\x00\x02\x00\x1d") + named("play.example.com") + extension(43, "\x02\x03\x04"))
	for name, c := range map[string]struct {
		head []byte
		want string
	}{
		"in one record":                      {records(whole, 1<<14), "play.example.com"},
		"a byte a record":                    {records(whole, 1), "play.example.com"},
		"in records of three bytes":          {records(whole, 3), "play.example.com"},
		"with more in the record":            {records(whole+"more", 1<<14), "play.example.com"},
		"with more behind":                   {append(records(whole, 50), "more"...), "play.example.com"},
		"in capitals and with a dot":         {records(hello(named("PLAY.Example.com.")), 99), "play.example.com"},
		"no extensions":                      {records(hello(""), 99), ""},
		"other extensions alone":             {records(hello(extension(10, "\x00\x02\x00\x1d")), 99), ""},
		"a name of a type that is not known": {records(hello(extension(0, u16("\x07"+u16("x")+"\x00"+u16("a.example")))), 99), "a.example"},
	} {
		t.Run(name, func(t *testing.T) {
			got, action := Protocol{}.ServerName(c.head)
			if action != proto.Hold || got != c.want {
				t.Errorf("got %q, action %d; want %q", got, action, c.want)
			}
			if v := (Protocol{}).Inspect(c.head, proto.Client{}); v.Action != proto.Hold {
				t.Errorf("action %d, want it to be held", v.Action)
			}
		})
	}
}

func TestMoreIsWaitedForAtEveryPlaceAtWhichBytesMayBeCut(t *testing.T) {
	heads := map[string][]byte{"a byte a record": records(hello(named("a.example")), 1)}
	for file := range names {
		heads[file] = recorded(t, file)
	}
	for name, whole := range heads {
		for end := range whole {
			if _, action := (Protocol{}).ServerName(whole[:end]); action != proto.NeedMore {
				t.Errorf("%d of the %d bytes of %s: action %d", end, len(whole), name, action)
			}
		}
	}
}

func TestWhatIsNoHelloIsRefused(t *testing.T) {
	whole := hello(named("a.example"))
	for name, head := range map[string][]byte{
		"HTTP":                        []byte("GET / HTTP/1.1\r\n\r\n"),
		"the first byte of SSH":       []byte("S"),
		"Minecraft":                   []byte("\x10\x00\xfd\x05"),
		"a hello of SSL 2":            []byte("\x80\x2e\x01\x03\x01\x00"),
		"an alert":                    []byte("\x15\x03\x01\x00\x02\x02\x28"),
		"a record of another version": []byte("\x16\x02"),
		"an empty record":             []byte("\x16\x03\x01\x00\x00"),
		"a record that is too long":   []byte("\x16\x03\x01\x40\x01"),
		"a server's hello":            []byte("\x16\x03\x01\x00\x40\x02"),
		"a hello that is too long":    []byte("\x16\x03\x01\x00\x40\x01\x01\x00\x00"),
		"one in pieces, too long":     []byte("\x16\x03\x01\x00\x03\x01\x01\x00\x16\x03\x01\x00\x02\x00\x00"),
		"a record of something else":  append(records(whole[:9], 9), "\x17\x03\x03\x00\x01a"...),
		"no random":                   records("\x01\x00\x00\x02\x03\x03", 99),
		"a session of 33 bytes":       records("\x01\x00"+u16("\x03\x03"+strings.Repeat("r", 32)+"\x21"+strings.Repeat("s", 33)+u16("\x13\x01")+"\x01\x00"), 99),
		"no cipher suites":            records("\x01\x00"+u16("\x03\x03"+strings.Repeat("r", 32)+"\x00"+u16("")+"\x01\x00"), 99),
		"half a cipher suite":         records("\x01\x00"+u16("\x03\x03"+strings.Repeat("r", 32)+"\x00"+u16("\x13")+"\x01\x00"), 99),
		"no compression":              records("\x01\x00"+u16("\x03\x03"+strings.Repeat("r", 32)+"\x00"+u16("\x13\x01")+"\x00"), 99),
		"extensions cut off":          records(hello("\x00\x00\x00\x09\x00"), 999),
		"two names":                   records(hello(named("a.example", "b.example")), 999),
		"the extension twice":         records(hello(named("a.example")+named("b.example")), 999),
		"an empty name":               records(hello(named("")), 999),
		"an empty list":               records(hello(extension(0, u16(""))), 999),
		"a list with something after": records(hello(extension(0, u16("\x00"+u16("a"))+"x")), 999),
	} {
		t.Run(name, func(t *testing.T) {
			if got, action := (Protocol{}).ServerName(head); action != proto.Refuse || got != "" {
				t.Errorf("got %q, action %d; want it refused", got, action)
			}
			if v := (Protocol{}).Inspect(head, proto.Client{}); v.Action != proto.Refuse || v.Answer != nil {
				t.Errorf("got %+v; want it refused", v)
			}
		})
	}
}

func TestOnlyANameThatNobodyHasIsAnswered(t *testing.T) {
	head := recorded(t, "go")
	for _, why := range []proto.Reason{proto.TimedOut, proto.QueueFull, proto.RouteGone, proto.Unfinished, proto.NothingToWake} {
		if got := (Protocol{}).Refusal(why, head, proto.Client{}); got != nil {
			t.Errorf("after %s it is told %x", why, got)
		}
	}
	if got := (Protocol{}).Refusal(proto.UnknownName, []byte("GET /"), proto.Client{}); got != nil {
		t.Errorf("who speaks no TLS is told %x", got)
	}
	// What an implementation of its own makes of the alert.
	client, server := net.Pipe()
	go func() {
		_, _ = io.ReadAtLeast(server, make([]byte, 4096), 100)
		_, _ = server.Write(Protocol{}.Refusal(proto.UnknownName, head, proto.Client{}))
		_ = server.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := stdtls.Client(client, &stdtls.Config{ServerName: "a.example"}).HandshakeContext(ctx)
	if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("the client says %v", err)
	}
}

func TestJudgingAHelloInOneRecordAllocatesNothing(t *testing.T) {
	for _, head := range [][]byte{recorded(t, "go"), recorded(t, "go")[:99], []byte("GET / HTTP/1.1")} {
		if n := testing.AllocsPerRun(100, func() { Protocol{}.Inspect(head, proto.Client{}) }); n != 0 {
			t.Errorf("judging %d bytes allocates %v times", len(head), n)
		}
	}
}

// oracle is what Go's own server reads; ok is false for what it doesn't take.
func oracle(head []byte) (name string, ok bool) {
	server := stdtls.Server(readOnly{Reader: bytes.NewReader(head)}, &stdtls.Config{
		GetConfigForClient: func(info *stdtls.ClientHelloInfo) (*stdtls.Config, error) {
			name, ok = info.ServerName, true
			return nil, io.EOF
		},
	})
	_ = server.HandshakeContext(context.Background())
	return name, ok
}

// readOnly is a connection on which somebody said all that there is.
type readOnly struct {
	net.Conn
	io.Reader
}

func (r readOnly) Read(b []byte) (int, error)       { return r.Reader.Read(b) }
func (readOnly) Write(b []byte) (int, error)        { return len(b), nil }
func (readOnly) Close() error                       { return nil }
func (readOnly) SetDeadline(time.Time) error        { return nil }
func (readOnly) SetWriteDeadline(_ time.Time) error { return nil }

func TestGosOwnServerReadsTheSame(t *testing.T) {
	for file, want := range names {
		if name, ok := oracle(recorded(t, file)); !ok || name != want {
			t.Errorf("%s asks for %q (%v), want %q", file, name, ok, want)
		}
	}
}

func FuzzHello(f *testing.F) {
	for file := range names {
		f.Add(recorded(f, file))
	}
	f.Add(records(hello(named("a.example")), 1))
	f.Add(records(hello(""), 7))
	f.Fuzz(func(t *testing.T, head []byte) {
		before := bytes.Clone(head)
		name, err := parseHello(head)
		if !bytes.Equal(before, head) {
			t.Fatal("what the client sent was changed")
		}
		if err != nil && !errors.Is(err, errShort) && !errors.Is(err, errMalformed) || err != nil && name != nil {
			t.Fatalf("got %q, %v", name, err)
		}
		if len(name) > len(head) {
			t.Fatalf("a name of %d bytes in %d", len(name), len(head))
		}
		if !errors.Is(err, errShort) {
			// More bytes don't change what was decided.
			more, again := parseHello(append(head[:len(head):len(head)], 0xaa))
			if !bytes.Equal(name, more) || !errors.Is(again, err) {
				t.Fatalf("with a byte more %q, %v became %q, %v", name, err, more, again)
			}
		}
		for _, end := range []int{len(head) / 2, len(head) - 1} {
			// Nor is anything decided with less that is otherwise with all of it.
			if end < 0 {
				continue
			}
			if less, early := parseHello(head[:end]); early == nil && (err != nil || !bytes.Equal(less, name)) || errors.Is(early, errMalformed) && !errors.Is(err, errMalformed) {
				t.Fatalf("with %d bytes %q, %v became %q, %v", end, less, early, name, err)
			}
		}
		if theirs, ok := oracle(head); ok && err == nil && theirs != string(name) {
			t.Fatalf("we read %q and Go's server %q", name, theirs)
		}
	})
}
