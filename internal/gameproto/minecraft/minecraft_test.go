package minecraft

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// frame takes a frame's length off.
func frame(t testing.TB, b []byte) []byte {
	t.Helper()
	length, size, err := ParseFrameLength(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != size+length {
		t.Fatalf("the frame has %d bytes and says %d", len(b)-size, length)
	}
	return b[size:]
}

func TestRecordedAnswersAreUnderstood(t *testing.T) {
	for name, players := range map[string]int{"status_empty": 0, "status_one": 1} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseStatus(frame(t, recorded(t, name)))
			if err != nil {
				t.Fatal(err)
			}
			want := Status{Version: "1.20.4", Protocol: 765, Players: players, Capacity: 7, Description: "A dormouse"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARequestIsLikeARealClients(t *testing.T) {
	// Ours asks for any protocol, which is longer by three bytes than 765.
	want := recorded(t, "request")
	want = bytes.Replace(want, []byte{0xfd, 0x05}, []byte{0xff, 0xff, 0xff, 0xff, 0x0f}, 1)
	want[0] += 3
	if diff := cmp.Diff(want, AppendStatusRequest(nil, "localhost", 47571)); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestVarIntsAreReadAsTheyAreWritten(t *testing.T) {
	for text, value := range map[string]int32{
		"00": 0, "01": 1, "7f": 127, "8001": 128, "ddc701": 25565, "ffff7f": 2097151,
		"ffffffff07": 2147483647, "ffffffff0f": -1, "8080808008": -2147483648,
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendVarInt(nil, value); !bytes.Equal(got, b) {
			t.Errorf("write %d: got %x, want %s", value, got, text)
		}
		got, size, err := ParseVarInt(append(b, 0xff))
		if got != value || size != len(b) || err != nil {
			t.Errorf("read %s: got %d of %d bytes (error %v), want %d", text, got, size, err, value)
		}
		for end := range b {
			if _, _, err := ParseVarInt(b[:end]); !errors.Is(err, ErrShort) {
				t.Errorf("read %x: got error %v, want ErrShort", b[:end], err)
			}
		}
	}
	if _, _, err := ParseVarInt([]byte{0x80, 0x80, 0x80, 0x80, 0x80}); err == nil || errors.Is(err, ErrShort) {
		t.Errorf("read a VarInt without an end: got error %v", err)
	}
}

func TestHostileFrameLengthsAreErrors(t *testing.T) {
	for _, length := range []int32{-2147483648, -1, 0, MaxFrame + 1, 2147483647} {
		if _, _, err := ParseFrameLength(AppendVarInt(nil, length)); err == nil || errors.Is(err, ErrShort) {
			t.Errorf("length %d: got error %v", length, err)
		}
	}
	if got, _, err := ParseFrameLength(AppendVarInt(nil, MaxFrame)); got != MaxFrame || err != nil {
		t.Errorf("length %d: got %d (error %v)", MaxFrame, got, err)
	}
}

// answer is a frame with a status of a text, without its length.
func answer(text string) []byte {
	return appendString(AppendVarInt(nil, statusID), text)
}

func TestMalformedAnswersAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		frame   []byte
		wantErr string
	}{
		"nothing":                  {nil, "more bytes"},
		"another packet":           {append([]byte{1}, answer("{}")[1:]...), "no status"},
		"no string":                {[]byte{0}, "length"},
		"a string that is cut":     {answer(`{"players":{"online":0,"max":1}}`)[:20], "in a packet that has"},
		"a string with more after": {append(answer(`{"players":{"online":0,"max":1}}`), '}'), "in a packet that has"},
		"a negative length":        {append(AppendVarInt([]byte{0}, -1), "{}"...), "-1 bytes"},
		"a huge length":            {append(AppendVarInt([]byte{0}, 2147483647), "{}"...), "2147483647 bytes"},
		"no UTF-8":                 {answer("{\"a\":\"\xff\"}"), "UTF-8"},
		"too many characters":      {answer(`{"players":{"online":0,"max":1}}` + strings.Repeat(" ", maxString)), "characters"},
		"no JSON":                  {answer("Hello"), "invalid character"},
		"no object":                {answer("[]"), "cannot unmarshal"},
		"no players":               {answer(`{"version":{"name":"1.20.4","protocol":765}}`), "how many play"},
		"players that are null":    {answer(`{"players":null}`), "how many play"},
		"no number that play":      {answer(`{"players":{"max":20}}`), "how many play"},
		"no number that may play":  {answer(`{"players":{"online":20}}`), "how many play"},
		"fewer than none":          {answer(`{"players":{"online":-1,"max":20}}`), "can't be"},
		"a negative capacity":      {answer(`{"players":{"online":0,"max":-1}}`), "can't be"},
		"more than there are":      {answer(`{"players":{"online":2147483648,"max":20}}`), "can't be"},
		"a number out of size":     {answer(`{"players":{"online":1e99,"max":20}}`), "cannot unmarshal"},
		"half a player":            {answer(`{"players":{"online":0.5,"max":20}}`), "cannot unmarshal"},
		"a name for a number":      {answer(`{"players":{"online":"0","max":20}}`), "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseStatus(c.frame); err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got error %v, want %q in it", err, c.wantErr)
			}
		})
	}
}

// Some servers hide how many play. They answer, and nobody knows whether they are empty.
func TestAStatusWithoutPlayersHasTheRest(t *testing.T) {
	want := Status{Version: "1.21.4", Protocol: 769, Description: "Dormice"}
	for name, players := range map[string]string{
		"none": ``, "null": `,"players":null`, "an empty object": `,"players":{}`, "only how many play": `,"players":{"online":3}`,
		"only how many may": `,"players":{"max":20}`, "fewer than none": `,"players":{"online":-1,"max":20}`, "a negative capacity": `,"players":{"online":0,"max":-1}`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseStatus(answer(`{"version":{"name":"1.21.4","protocol":769},"description":"Dormice"` + players + `}`))
			if !errors.Is(err, ErrNoPlayers) {
				t.Errorf("got error %v, want ErrNoPlayers", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := ParseStatus(answer(`{"players":{"online":"3","max":20}}`)); err == nil || errors.Is(err, ErrNoPlayers) {
		t.Errorf("a status that is malformed: got error %v", err)
	}
}

func TestDescriptionsAreReadAsPlainText(t *testing.T) {
	deep := strings.Repeat(`{"text":"a","extra":[`, 100) + strings.Repeat(`]}`, 100)
	for name, c := range map[string]struct{ description, want string }{
		"a string":            {`"Dormice"`, "Dormice"},
		"an object":           {`{"text":"Dormice"}`, "Dormice"},
		"more after it":       {`{"extra":[{"text":"mi"},"ce"],"text":"Dor"}`, "Dormice"},
		"a list":              {`["Dor",{"text":"mi","extra":["c"]},"e"]`, "Dormice"},
		"nothing":             {`null`, ""},
		"a number":            {`{"text":5}`, ""},
		"what is translated":  {`{"translate":"multiplayer.disconnect"}`, ""},
		"texts in texts":      {deep, "aaaa"},
		"more than it may be": {`"` + strings.Repeat("a", 2*maxText) + `"`, strings.Repeat("a", maxText)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseStatus(answer(`{"players":{"online":3,"max":4},"description":` + c.description + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Status{Players: 3, Capacity: 4, Description: c.want}, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALongStatusIsNotWritten(t *testing.T) {
	if _, err := AppendStatus(nil, Status{Description: strings.Repeat("a", maxString)}); err == nil {
		t.Error("a status that no client takes was written")
	}
}

func TestAFaviconIsReadAndWritten(t *testing.T) {
	for name, c := range map[string]struct{ favicon, want string }{
		"a picture":        {`"data:image/png;base64,iVBORw0KGgo="`, "data:image/png;base64,iVBORw0KGgo="},
		"with lines":       {`"data:image/png;base64,iVBO\nRw0K\nGgo="`, "data:image/png;base64,iVBORw0KGgo="},
		"another's format": {`"data:image/gif;base64,R0lGODlh"`, ""},
		"a link":           {`"http://example.com/a.png"`, ""},
		"a number":         {`7`, ""},
		"a huge one":       {`"data:image/png;base64,` + strings.Repeat("A", maxFavicon) + `"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseStatus(answer(`{"players":{"online":3,"max":4},"favicon":` + c.favicon + `}`))
			if err != nil || got.Favicon != c.want {
				t.Fatalf("got %q, %v, want %q", got.Favicon, err, c.want)
			}
			b, err := AppendStatus(nil, got)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := ParseStatus(frame(t, b)); err != nil || again != got {
				t.Errorf("wrote %+v, read %+v (error %v)", got, again, err)
			}
		})
	}
}

func TestTextsAreQuotedAsJSONWants(t *testing.T) {
	const text = "a \"dormouse\" \\ §6sleeps\n\x00\x1f\u2028 in\t\xff 🐭"
	b := AppendLoginDisconnect([]byte("before"), text)
	packet := frame(t, bytes.TrimPrefix(b, []byte("before")))
	var got struct{ Text string }
	// After the packet's number and the string's length.
	if err := json.Unmarshal(packet[2:], &got); err != nil {
		t.Fatalf("%v in %q", err, packet)
	}
	if want := strings.ToValidUTF8(text, "\ufffd"); got.Text != want {
		t.Errorf("got %q, want %q", got.Text, want)
	}
	if packet[0] != 0 || int(packet[1]) != len(packet)-2 {
		t.Errorf("the packet begins with %x and has %d bytes", packet[:2], len(packet))
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add(recorded(f, "status_empty"))
	f.Add(recorded(f, "status_one"))
	f.Add(AppendFrame(nil, answer(`{"players":{"online":1,"max":2},"description":["a",{"text":"b","extra":[]}]}`)))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		length, size, err := ParseFrameLength(b)
		if err != nil {
			return
		}
		if length < 1 || length > MaxFrame || size < 1 || size > 5 {
			t.Fatalf("a length of %d in %d bytes", length, size)
		}
		s, err := ParseStatus(b[size:])
		if err != nil && !errors.Is(err, ErrNoPlayers) {
			return
		}
		if s.Players < 0 || s.Capacity < 0 || len(s.Description) > maxText {
			t.Fatalf("got %+v", s)
		}
		again, err := AppendStatus(nil, s)
		if err != nil {
			return
		}
		if got, err := ParseStatus(frame(t, again)); err != nil || got != s {
			t.Fatalf("wrote %+v, read %+v (error %v)", s, got, err)
		}
	})
}
