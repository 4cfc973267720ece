package bedrock

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"slices"
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

func TestRecordedPongsAreUnderstood(t *testing.T) {
	for name, players := range map[string]int{"pong_empty": 0, "pong_one": 1} {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePong(recorded(t, name))
			if err != nil {
				t.Fatal(err)
			}
			want := Pong{
				Time: 0x0102030405060708, GUID: 0x863cdf7c4d0791d0,
				Status: Status{
					Edition: "MCPE", Name: "A dormouse", Level: "burrow",
					Version: "1.21.60", Protocol: 776, Players: players, Capacity: 5, Mode: "Creative",
				},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pong (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPingIsLikeARealClients(t *testing.T) {
	want := recorded(t, "ping")
	time, guid := binary.BigEndian.Uint64(want[1:]), binary.BigEndian.Uint64(want[25:])
	if diff := cmp.Diff(want, AppendPing(nil, time, guid)); diff != "" {
		t.Errorf("ping (-want +got):\n%s", diff)
	}
}

// pong is one with a text.
func pong(text string) []byte {
	b := append([]byte{pongID}, make([]byte, 16)...)
	b = append(b, magic[:]...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

func TestTextsOfOtherServersAreUnderstood(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Status
	}{
		"the oldest that have numbers": {
			"MCPE;Warren;34;0.12.2;3;20",
			Status{Edition: "MCPE", Name: "Warren", Protocol: 34, Version: "0.12.2", Players: 3, Capacity: 20},
		},
		"a school": {
			"MCEE;Warren;1;1.20;3;20;17;Down;Survival;1;19132;19133;",
			Status{Edition: "MCEE", Name: "Warren", Protocol: 1, Version: "1.20", Players: 3, Capacity: 20, Level: "Down", Mode: "Survival"},
		},
		"semicolons in the name": {
			`MCPE;Dig\; eat\; sleep;800;1.21.80;3;20;17;Down;`,
			Status{Edition: "MCPE", Name: "Dig; eat; sleep", Protocol: 800, Version: "1.21.80", Players: 3, Capacity: 20, Level: "Down"},
		},
		"empty fields": {
			"MCPE;;;;0;0;;;;",
			Status{Edition: "MCPE"},
		},
		"more fields than there are": {
			"MCPE;Warren;800;1.21.80;3;20;" + strings.Repeat("x;", 1000),
			Status{Edition: "MCPE", Name: "Warren", Protocol: 800, Version: "1.21.80", Players: 3, Capacity: 20, Level: "x", Mode: "x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePong(pong(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMalformedPongsAreErrors(t *testing.T) {
	whole := pong("MCPE;Warren;800;1.21.80;3;20;")
	changed := func(at int, to byte) []byte {
		b := slices.Clone(whole)
		b[at] = to
		return b
	}
	for name, c := range map[string]struct {
		pong    []byte
		wantErr string
	}{
		"nothing":                 {nil, "fewer"},
		"only a head":             {whole[:34], "fewer"},
		"another message":         {changed(0, 0x1d), "0x1d"},
		"no magic":                {changed(21, 0), "magic"},
		"a text that is cut":      {whole[:len(whole)-1], "has 28 for it"},
		"a huge length":           {changed(33, 0xff), "a text of 65309 bytes"},
		"no text":                 {pong(""), "0 fields"},
		"too few fields":          {pong("MCPE;Warren;800;1.21.80;3;"), "5 fields"},
		"another edition":         {pong("MCXX;Warren;800;1.21.80;3;20;"), "no edition"},
		"players without number":  {pong("MCPE;Warren;800;1.21.80;;20;"), "players"},
		"fewer than none":         {pong("MCPE;Warren;800;1.21.80;-3;20;"), "players"},
		"more than there are":     {pong("MCPE;Warren;800;1.21.80;2147483648;20;"), "players"},
		"capacity without number": {pong("MCPE;Warren;800;1.21.80;3;many;"), "capacity"},
		"an escape at the end":    {pong(`MCPE;Warren;800;1.21.80;3;\`), "capacity"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParsePong(c.pong); err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got error %v, want %q in it", err, c.wantErr)
			}
		})
	}
}

func TestALongPongIsNotWritten(t *testing.T) {
	if _, err := AppendPong(nil, Pong{Status: Status{Name: strings.Repeat("a", 1<<16)}}); err == nil {
		t.Error("a pong whose length can't be told was written")
	}
}

func TestWhatClientsAskIsToldApart(t *testing.T) {
	ping := recorded(t, "ping")
	request := append(append([]byte{request1ID}, magic[:]...), 10)
	for name, c := range map[string]struct {
		b             []byte
		ping, request bool
	}{
		"nothing":              {nil, false, false},
		"a ping":               {ping, true, false},
		"a ping to open ones":  {append([]byte{2}, ping[1:]...), true, false},
		"a ping that is cut":   {ping[:len(ping)-1], false, false},
		"a ping without magic": {append(slices.Clone(ping[:20]), make([]byte, 13)...), false, false},
		"the first request":    {request, false, true},
		"the second request":   {append([]byte{7}, request[1:]...), false, true},
		"a request that's cut": {request[:len(request)-1], false, false},
		"another message":      {append([]byte{6}, request[1:]...), false, false},
		"a frame of a game":    {append([]byte{0x84}, request[1:]...), false, false},
	} {
		time, isPing := ParsePing(c.b)
		if isPing != c.ping || IsConnectionRequest(c.b) != c.request {
			t.Errorf("%s: a ping %t, a request %t", name, isPing, IsConnectionRequest(c.b))
		}
		if isPing && time != 0x01a1ffb0bccc {
			t.Errorf("%s: the time is %#x", name, time)
		}
	}
}

func FuzzParsePong(f *testing.F) {
	f.Add(recorded(f, "pong_empty"))
	f.Add(recorded(f, "pong_one"))
	f.Add(pong(`MCPE;Dig\; eat\; sleep;800;1.21.80;3;20;17;Down;`))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		p, err := ParsePong(b)
		if !bytes.Equal(before, b) {
			t.Fatal("the pong was changed")
		}
		if err != nil {
			return
		}
		if p.Status.Players < 0 || p.Status.Capacity < 0 {
			t.Fatalf("got %+v", p)
		}
		// A backslash at a field's end would escape what ends it.
		if strings.Contains(string(b), `\`) {
			return
		}
		again, err := AppendPong(nil, p)
		if err != nil {
			return
		}
		if got, err := ParsePong(again); err != nil || got != p {
			t.Fatalf("wrote %+v, read %+v (error %v)", p, got, err)
		}
	})
}
