package quake3

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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

func TestRecordedStatusesAreUnderstood(t *testing.T) {
	for name, want := range map[string][]Player{
		"status_empty": nil,
		"status_three": {{Name: "Sarge"}, {Name: "Gargoyle"}, {Name: "Hazel", Ping: 999}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseStatus(recorded(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Players, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("players (-want +got):\n%s", diff)
			}
			for name, value := range map[string]string{
				VarChallenge: "rabbit", VarCapacity: "12", VarName: "A dormouse", "gamename": "baseoa",
				"g_voteGametypes": "/0/1/3/4/5/6/7/8/9/10/11/12/", "g_altExcellent": "0",
			} {
				if got.Info[name] != value {
					t.Errorf("%s: got %q, want %q", name, got.Info[name], value)
				}
			}
		})
	}
}

func TestARecordedInfoIsUnderstood(t *testing.T) {
	got, err := ParseInfo(recorded(t, "info_three"))
	if err != nil {
		t.Fatal(err)
	}
	want := Info{
		"voip": "opus", "g_needpass": "0", "pure": "1", "gametype": "0", "sv_maxclients": "12", "g_humanplayers": "1", "clients": "3",
		"mapname": "oa_dm1", "hostname": "A dormouse", "protocol": "71", "gamename": "Quake3Arena", "challenge": "rabbit",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
	if humans, ok := got.Number(VarHumans); humans != 1 || !ok {
		t.Errorf("got %d humans (%v), want 1", humans, ok)
	}
}

func TestRequestsAreAsTheProtocolSays(t *testing.T) {
	if got := AppendStatusRequest(nil, "rabbit"); string(got) != "\xff\xff\xff\xffgetstatus rabbit" {
		t.Errorf("got %q", got)
	}
	if got := AppendInfoRequest(nil, "rabbit"); string(got) != "\xff\xff\xff\xffgetinfo rabbit" {
		t.Errorf("got %q", got)
	}
}

func TestPlayersOfOtherGamesAreUnderstood(t *testing.T) {
	for name, c := range map[string]struct {
		lines string
		want  []Player
	}{
		"a team beside the ping":    {"-5 48 1 \"Hazel\"\n", []Player{{-5, 48, "Hazel"}}},
		"a quote in the name":       {"1 2 \"Ha\"zel\"\n", []Player{{1, 2, `Ha"zel`}}},
		"an empty name":             {"1 2 \"\"\n", []Player{{1, 2, ""}}},
		"an address after the name": {"1 2 \"Hazel\" \"1.2.3.4\"\n", []Player{{1, 2, `Hazel" "1.2.3.4`}}},
		"no end of the last line":   {"1 2 \"Hazel\"\n3 4 \"Fiver\"", []Player{{1, 2, "Hazel"}, {3, 4, "Fiver"}}},
		"line ends of Windows":      {"1 2 \"Hazel\"\r\n", []Player{{1, 2, "Hazel"}}},
		"a zero byte at the end":    {"1 2 \"Hazel\"\n\x00", []Player{{1, 2, "Hazel"}}},
		"a name that is no UTF-8":   {"1 2 \"H\xe4sel\"\n", []Player{{1, 2, "H\xe4sel"}}},
		"a team after the name":     {"0 48 \"Hazel\" 2\n7 51 \"Fi\"ver\" 3\n", []Player{{0, 48, "Hazel"}, {7, 51, `Fi"ver`}}},
		// Somebody plays, whoever it is.
		"a player without a name": {"1 2\n", []Player{Unreadable}},
		"a line that is cut off":  {"1 2 \"Hazel\"\n3 4 \"Fiv", []Player{{1, 2, "Hazel"}, Unreadable}},
		"only a quote":            {"1 2 \"\n", []Player{Unreadable}},
		"no ping":                 {"1 \"Hazel\"\n", []Player{Unreadable}},
		"a score of letters":      {"x 2 \"Hazel\"\n", []Player{Unreadable}},
		"a ping of letters":       {"1 x \"Hazel\"\n", []Player{Unreadable}},
		"a huge ping":             {"1 99999999999 \"Hazel\"\n", []Player{Unreadable}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseStatus([]byte(mark + statusHead + "\\a\\b\n" + c.lines))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Status{Info: Info{"a": "b"}, Players: c.want}, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMalformedStatusesAreErrors(t *testing.T) {
	head := mark + statusHead
	for name, c := range map[string]struct{ status, wantErr string }{
		"nothing":            {"", "head"},
		"a cut head":         {head[:10], "head"},
		"an info":            {mark + infoHead + `\a\b`, "head"},
		"no backslash":       {head + "a\\b\n", "backslash"},
		"no value":           {head + "\\a\\b\\c\n", `"c" has no value`},
		"too many variables": {head + variables(maxPairs+1) + "\n", "more than 512 variables"},
		"too many players":   {head + "\\a\\b\n" + strings.Repeat("0 0 \"a\"\n", maxPlayers+1), "more than 1024 players"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseStatus([]byte(c.status)); err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got error %v, want %q in it", err, c.wantErr)
			}
		})
	}
	if _, err := ParseInfo([]byte(head + `\a\b`)); err == nil {
		t.Error("a status was taken for an info")
	}
	if _, err := ParseInfo([]byte(mark + infoHead + `\a`)); err == nil {
		t.Error("a variable without a value was taken")
	}
}

func variables(count int) string {
	all := strings.Builder{}
	for i := range count {
		fmt.Fprintf(&all, `\v%d\x`, i)
	}
	return all.String()
}

func TestAsManyAsMayBeAreUnderstood(t *testing.T) {
	got, err := ParseStatus([]byte(mark + statusHead + variables(maxPairs) + "\n" + strings.Repeat("0 0 \"a\"\n", maxPlayers)))
	if err != nil || len(got.Info) != maxPairs || len(got.Players) != maxPlayers {
		t.Errorf("got %d variables and %d players (error %v)", len(got.Info), len(got.Players), err)
	}
}

func TestNumbersOfVariables(t *testing.T) {
	info := Info{"zero": "0", "some": "12", "negative": "-1", "huge": "2147483648", "word": "many", "empty": ""}
	for name, want := range map[string]int{"zero": 0, "some": 12, "negative": -1, "huge": -1, "word": -1, "empty": -1, "missing": -1} {
		got, ok := info.Number(name)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: got %d (%v), want %d", name, got, ok, want)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add(recorded(f, "status_empty"))
	f.Add(recorded(f, "status_three"))
	f.Add([]byte(mark + statusHead + "\\a\\b\n-5 48 1 \"Ha\"zel\"\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseStatus(b)
		if err != nil {
			return
		}
		if len(s.Info) > maxPairs || len(s.Players) > maxPlayers {
			t.Fatalf("%d variables and %d players", len(s.Info), len(s.Players))
		}
		// These bytes end something, and are left out when they are written.
		if strings.ContainsAny(string(b[len(mark):]), "\r\x00") || strings.Contains(string(b), `""`) || strings.Count(string(b), `"`) > 2*len(s.Players) {
			return
		}
		got, err := ParseStatus(AppendStatus(nil, s))
		if err != nil || !maps.Equal(got.Info, s.Info) || !slices.Equal(got.Players, s.Players) {
			t.Fatalf("wrote %+v, read %+v (error %v)", s, got, err)
		}
	})
}

func FuzzParseInfo(f *testing.F) {
	f.Add(recorded(f, "info_three"))
	f.Add([]byte(mark + infoHead + "\\a\\b\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := ParseInfo(b)
		if err != nil {
			return
		}
		if len(i) > maxPairs {
			t.Fatalf("%d variables", len(i))
		}
		if strings.ContainsAny(string(b[len(mark+infoHead):]), "\r\n\x00") {
			return
		}
		if got, err := ParseInfo(AppendInfo(nil, i)); err != nil || !maps.Equal(got, i) {
			t.Fatalf("wrote %q, read %q (error %v)", i, got, err)
		}
	})
}
