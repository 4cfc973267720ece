package source

import (
	"bytes"
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

var (
	counterStrike = Info{
		Protocol: 2, Name: "game2xs.com Counter-Strike Source #1", Map: "de_dust", Folder: "cstrike", Game: "Counter-Strike: Source",
		AppID: 240, Players: 5, Capacity: 16, Bots: 4, Type: 'd', OS: 'l', Version: "1.0.0.22",
	}
	theShipInfo = Info{
		Protocol: 7, Name: "Ship Server", Map: "batavier", Folder: "ship", Game: "The Ship",
		AppID: 2400, Players: 1, Capacity: 5, Type: 'l', OS: 'w', Version: "1.0.0.4",
	}
	zomboid = Info{
		Protocol: 17, Name: "play.thegamecracks.xyz", Map: "Muldraugh, KY", Folder: "zomboid", Game: "Project Zomboid",
		Capacity: 8, Type: 'd', OS: 'l', Password: true, Secure: true, Version: "1.0.0.0", Port: 16261, GameID: 108600,
	}
)

func TestRecordedInfosAreUnderstood(t *testing.T) {
	for name, c := range map[string]struct {
		want   Info
		humans int
	}{
		"info_counter_strike":  {counterStrike, 1},
		"info_the_ship":        {theShipInfo, 1},
		"info_project_zomboid": {zomboid, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseAnswer(recorded(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Answer{Info: &c.want}, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if humans := got.Info.Humans(); humans != c.humans {
				t.Errorf("got %d humans, want %d", humans, c.humans)
			}
		})
	}
}

func TestARelaysPortAndKeywordsAreUnderstood(t *testing.T) {
	b := recorded(t, "info_the_ship")
	b = append(b, extraSpectator|extraKeywords, 0x88, 0x69)
	b = append(b, "SourceTV\x00alltalk,nocrits\x00"...)
	got, err := ParseAnswer(b)
	if err != nil || got.Info.Keywords != "alltalk,nocrits" {
		t.Errorf("got %+v (error %v)", got.Info, err)
	}
}

func TestBotsAreNoHumans(t *testing.T) {
	for name, c := range map[string]struct {
		players, bots uint8
		want          int
	}{
		"nobody":                          {0, 0, 0},
		"people only":                     {3, 0, 3},
		"bots only":                       {4, 4, 0},
		"both":                            {7, 4, 3},
		"bots that are not among players": {1, 4, 1},
		"as many as there can be":         {255, 0, 255},
	} {
		if got := (Info{Players: c.players, Bots: c.bots}).Humans(); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func TestAChallengeIsUnderstood(t *testing.T) {
	got, err := ParseAnswer([]byte("\xff\xff\xff\xffA\x0a\x08\x5e\xea"))
	want := Challenge{0x0a, 0x08, 0x5e, 0xea}
	if err != nil || got.Info != nil || got.Challenge == nil || *got.Challenge != want {
		t.Errorf("got %+v (error %v), want challenge %x", got, err, want)
	}
}

func TestRequestsAreAsTheProtocolSays(t *testing.T) {
	want := "\xff\xff\xff\xffTSource Engine Query\x00"
	if got := AppendInfoRequest(nil, nil); string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := AppendInfoRequest(nil, &Challenge{1, 2, 3, 4}); string(got) != want+"\x01\x02\x03\x04" {
		t.Errorf("with a challenge: got %q", got)
	}
}

func TestMalformedAnswersAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		answer  string
		wantErr string
	}{
		"nothing":                       {"", "mark"},
		"only a mark":                   {"\xff\xff\xff\xff", "too early"},
		"a part":                        {"\xfe\xff\xff\xff", "mark"},
		"the players' list":             {"\xff\xff\xff\xffD\x00", "0x44"},
		"the old form":                  {"\xff\xff\xff\xffm127.0.0.1:27015\x00", "GoldSource"},
		"half a challenge":              {"\xff\xff\xff\xffA\x01\x02", "too early"},
		"a name without an end":         {"\xff\xff\xff\xffI\x11Warren", "doesn't end"},
		"a name that is too long":       {"\xff\xff\xff\xffI\x11" + strings.Repeat("a", maxString+1) + "\x00", "doesn't end"},
		"an extra that isn't there":     {string(recorded(t, "info_the_ship")) + "\x80", "too early"},
		"keywords without an end":       {string(recorded(t, "info_the_ship")) + "\x20abc", "doesn't end"},
		"extra bytes that aren't there": {string(recorded(t, "info_the_ship")) + "\x01\x01", "too early"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseAnswer([]byte(c.answer)); err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got error %v, want %q in it", err, c.wantErr)
			}
		})
	}
}

func TestACutInfoIsAnError(t *testing.T) {
	whole := recorded(t, "info_counter_strike")
	for end := range whole {
		if _, err := ParseAnswer(whole[:end]); err == nil {
			t.Errorf("the first %d of %d bytes were taken for an info", end, len(whole))
		}
	}
}

// partOf writes a part.
func partOf(id uint32, total, number byte, payload string) []byte {
	return append([]byte{0xfe, 0xff, 0xff, 0xff, byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24), total, number, 0xe0, 0x04}, payload...)
}

func TestPartsAreePutTogetherInAnyOrder(t *testing.T) {
	whole := string(recorded(t, "info_counter_strike"))
	parts := [][]byte{
		partOf(7, 3, 0, whole[:20]), partOf(7, 3, 1, whole[20:40]), partOf(7, 3, 2, whole[40:]),
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 1, 2, 1, 0}} {
		together := Parts{}
		var got []byte
		for i, number := range order {
			if !IsPart(parts[number]) {
				t.Fatal("a part isn't known as one")
			}
			one, err := ParsePart(parts[number])
			if err != nil {
				t.Fatal(err)
			}
			if got, err = together.Add(one); err != nil {
				t.Fatal(err)
			}
			if last := i == len(order)-1; (got != nil) != last {
				t.Errorf("order %v: got %d bytes after part %d", order, len(got), i)
			}
		}
		if string(got) != whole {
			t.Errorf("order %v: got %q, want %q", order, got, whole)
		}
	}
}

func TestMalformedPartsAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		part    []byte
		wantErr string
	}{
		"a whole answer":      {[]byte("\xff\xff\xff\xffI"), "mark"},
		"only a mark":         {[]byte("\xfe\xff\xff\xff"), "too early"},
		"no size":             {partOf(1, 2, 0, "")[:11], "too early"},
		"a compressed one":    {partOf(1<<31|1, 2, 0, "abc"), "compressed"},
		"none in all":         {partOf(1, 0, 0, "abc"), "can't be"},
		"a number too high":   {partOf(1, 2, 2, "abc"), "can't be"},
		"too many":            {partOf(1, 255, 0, "abc"), "too many"},
		"nothing in it":       {partOf(1, 2, 0, ""), "none or too many"},
		"too many in it":      {partOf(1, 2, 0, strings.Repeat("a", maxPart+1)), "none or too many"},
		"GoldSource's form":   {[]byte("\xfe\xff\xff\xff\x01\x00\x00\x00\x02"), "too early"},
		"the oldest Source's": {append([]byte("\xfe\xff\xff\xff\x01\x00\x00\x00\x02\x05"), "\xff\xff\xff\xffI"...), "can't be"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParsePart(c.part); err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got error %v, want %q in it", err, c.wantErr)
			}
		})
	}
}

func TestPartsOfOtherAnswersAreErrors(t *testing.T) {
	for name, other := range map[string]Part{
		"another answer's":    {ID: 8, Total: 2, Number: 1, Payload: []byte("b")},
		"of more":             {ID: 7, Total: 3, Number: 1, Payload: []byte("b")},
		"a number that isn't": {ID: 7, Total: 2, Number: 2, Payload: []byte("b")},
		"a negative number":   {ID: 7, Total: 2, Number: -1, Payload: []byte("b")},
		"of none":             {ID: 7, Total: 0, Number: 0, Payload: []byte("b")},
	} {
		together := Parts{}
		if _, err := together.Add(Part{ID: 7, Total: 2, Number: 0, Payload: []byte("a")}); err != nil {
			t.Fatal(err)
		}
		if _, err := together.Add(other); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add(recorded(f, "info_counter_strike"))
	f.Add(recorded(f, "info_the_ship"))
	f.Add(recorded(f, "info_project_zomboid"))
	f.Add([]byte("\xff\xff\xff\xffA\x0a\x08\x5e\xea"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseAnswer(b)
		if err != nil {
			return
		}
		if (a.Info == nil) == (a.Challenge == nil) {
			t.Fatalf("got %+v", a)
		}
		if a.Info != nil && (a.Info.Humans() < 0 || a.Info.Humans() > 255) {
			t.Fatalf("got %d humans", a.Info.Humans())
		}
		got, err := ParseAnswer(AppendAnswer(nil, a))
		same := a.Info != nil && got.Info != nil && *got.Info == *a.Info ||
			a.Challenge != nil && got.Challenge != nil && *got.Challenge == *a.Challenge
		if err != nil || !same {
			t.Fatalf("wrote %+v, read %+v (error %v)", a, got, err)
		}
	})
}

func FuzzParts(f *testing.F) {
	f.Add(partOf(7, 2, 0, "ab"), partOf(7, 2, 1, "cd"))
	f.Add(partOf(7, 1, 0, "ab"), partOf(7, 3, 2, "cd"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		together := Parts{}
		for _, datagram := range [][]byte{a, b} {
			one, err := ParsePart(datagram)
			if err != nil {
				continue
			}
			before := bytes.Clone(datagram)
			whole, err := together.Add(one)
			if !bytes.Equal(before, datagram) {
				t.Fatal("the datagram was changed")
			}
			if err == nil && len(whole) > len(a)+len(b) {
				t.Fatalf("%d bytes of %d", len(whole), len(a)+len(b))
			}
		}
	})
}
