package probe

import (
	"bytes"
	"encoding/binary"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"dormouse.dev/dormouse/internal/gameproto/bedrock"
	"dormouse.dev/dormouse/internal/gameproto/quake3"
	"dormouse.dev/dormouse/internal/gameproto/source"
)

// pongFor answers a ping as of a time, with so many players.
func pongFor(t *testing.T, time uint64, players int) []byte {
	t.Helper()
	b, err := bedrock.AppendPong(nil, bedrock.Pong{Time: time, GUID: 7, Status: bedrock.Status{
		Edition: "MCPE", Name: "Warren", Version: "1.21.60", Protocol: 776, Players: players, Capacity: 20,
	}})
	if err != nil {
		t.Error(err)
	}
	return b
}

func TestBedrockAnswersOfAnotherPingArePassedOver(t *testing.T) {
	address := datagrams(t, func(ping []byte) [][]byte {
		time := binary.BigEndian.Uint64(ping[1:])
		return [][]byte{pongFor(t, time+1, 9), pongFor(t, 0, 9), pongFor(t, time, 3), pongFor(t, time, 9)}
	})
	wantStatus(t, Bedrock, address, Status{Players: 3, Capacity: 20, Version: "1.21.60", Name: "Warren"})
}

func TestBedrockPingsCanNotBeForeseen(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	address := datagrams(t, func(ping []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		for _, random := range [][]byte{ping[1:9], ping[25:33]} {
			if seen[string(random)] {
				t.Errorf("%x came twice", random)
			}
			seen[string(random)] = true
		}
		return [][]byte{pongFor(t, binary.BigEndian.Uint64(ping[1:]), 0)}
	})
	for range 5 {
		if _, err := query(t, Bedrock, address); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 10 {
		t.Errorf("got %d numbers, want 10", len(seen))
	}
}

func TestAFloodOfOtherAnswersEndsTheQuery(t *testing.T) {
	address := datagrams(t, func([]byte) [][]byte {
		flood := make([][]byte, 2*maxIgnored)
		for i := range flood {
			flood[i] = pongFor(t, 0, i)
		}
		return flood
	})
	wantError(t, Bedrock, address, "another question")
}

func TestMalformedDatagramsAreErrorsAtOnce(t *testing.T) {
	for _, kind := range []Kind{Bedrock, Source, Quake3} {
		for name, answer := range map[string][]byte{
			"an empty one":    {},
			"noise":           []byte("\x1cnoise"),
			"only a mark":     []byte("\xff\xff\xff\xff"),
			"a huge one":      bytes.Repeat([]byte{0xff}, maxDatagram+1),
			"the largest one": bytes.Repeat([]byte{0xff}, 60_000),
		} {
			t.Run(string(kind)+" "+name, func(t *testing.T) {
				text := "parse"
				if len(answer) > maxDatagram {
					text = "more than 16384 bytes"
				}
				wantError(t, kind, datagrams(t, func([]byte) [][]byte { return [][]byte{answer} }), text)
			})
		}
	}
}

var (
	valveInfo = source.Info{
		Protocol: 17, Name: "Warren", Map: "down", Folder: "game", Game: "Game", AppID: 10,
		Players: 7, Capacity: 20, Bots: 4, Type: 'd', OS: 'l', Version: "1.2.3",
	}
	valveStatus = Status{Players: 3, Capacity: 20, Version: "1.2.3", Name: "Warren"}
	infoBytes   = source.AppendAnswer(nil, source.Answer{Info: &valveInfo})
)

// challenging is a server that tells its info to who knows its challenge. The
// challenges change with each of the first few requests.
func challenging(t *testing.T, changes int) string {
	t.Helper()
	number := byte(1)
	return datagrams(t, func(request []byte) [][]byte {
		challenge := source.Challenge{1, 2, 3, number}
		if bytes.Equal(request, source.AppendInfoRequest(nil, &challenge)) {
			return [][]byte{infoBytes}
		}
		if changes > 0 {
			changes--
			number++
			challenge[3] = number
			// What it says is outdated at once.
			number++
			return [][]byte{source.AppendAnswer(nil, source.Answer{Challenge: &challenge})}
		}
		return [][]byte{source.AppendAnswer(nil, source.Answer{Challenge: &challenge})}
	})
}

func TestSourceServersChallengesAreMet(t *testing.T) {
	t.Run("one that asks for none", func(t *testing.T) {
		wantStatus(t, Source, datagrams(t, func(request []byte) [][]byte {
			if !bytes.Equal(request, source.AppendInfoRequest(nil, nil)) {
				t.Errorf("asked %q first", request)
			}
			return [][]byte{infoBytes}
		}), valveStatus)
	})
	t.Run("one that asks for one", func(t *testing.T) { wantStatus(t, Source, challenging(t, 0), valveStatus) })
	t.Run("one that changed it", func(t *testing.T) { wantStatus(t, Source, challenging(t, 1), valveStatus) })
	t.Run("one that is never content", func(t *testing.T) { wantError(t, Source, challenging(t, 1000), "challenge") })
}

// valveParts cuts an answer into three.
func valveParts(id byte) [][]byte {
	parts := make([][]byte, 3)
	for i := range parts {
		parts[i] = []byte{0xfe, 0xff, 0xff, 0xff, id, 0, 0, 0, 3, byte(i), 0xe0, 0x04}
		end := len(infoBytes)
		if i < 2 {
			end = (i + 1) * 20
		}
		parts[i] = append(parts[i], infoBytes[i*20:end]...)
	}
	return parts
}

// Some servers count their bots among the players, and others don't. With as many people as bots an answer
// alone can't tell.
func TestSourceServersThatCountBotsApartAreRemembered(t *testing.T) {
	type answer struct {
		players, bots uint8
		people        int
	}
	for name, c := range map[string][]answer{
		"bots among players": {{4, 4, 0}, {5, 4, 1}, {8, 4, 4}, {4, 4, 0}},
		"bots apart":         {{0, 9, 0}, {4, 6, 4}, {5, 5, 5}, {6, 4, 6}, {0, 9, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var now atomic.Pointer[answer]
			p, err := New(Source, datagrams(t, func([]byte) [][]byte {
				info := valveInfo
				info.Players, info.Bots = now.Load().players, now.Load().bots
				return [][]byte{source.AppendAnswer(nil, source.Answer{Info: &info})}
			}))
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range c {
				now.Store(&a)
				if got, err := p.Query(t.Context()); err != nil || got.Players != a.people {
					t.Errorf("with %d players and %d bots there are %d people (error %v), want %d", a.players, a.bots, got.Players, err, a.people)
				}
			}
		})
	}
}

func TestSourceAnswersMayComeInParts(t *testing.T) {
	parts := valveParts(7)
	wantStatus(t, Source, datagrams(t, func([]byte) [][]byte { return [][]byte{parts[2], parts[0], parts[0], parts[1]} }), valveStatus)
	compressed := bytes.Clone(parts[0])
	compressed[7] = 0x80
	wantError(t, Source, datagrams(t, func([]byte) [][]byte { return [][]byte{compressed} }), "compressed")
	other := valveParts(8)
	wantError(t, Source, datagrams(t, func([]byte) [][]byte { return [][]byte{parts[0], other[1], parts[2]} }), "another answer")
}

// idTech is a server of Quake 3's family with some players, that tells more in
// its info where told isn't nil.
func idTech(t *testing.T, settings quake3.Info, pings ...int) string {
	t.Helper()
	return datagrams(t, func(request []byte) [][]byte {
		command, challenge, _ := strings.Cut(strings.TrimPrefix(string(request), "\xff\xff\xff\xff"), " ")
		info := quake3.Info{"challenge": challenge, "sv_hostname": "^1Warren", "sv_maxclients": "20", "version": "ioq3"}
		late := quake3.Info{"challenge": "earlier", "sv_maxclients": "1", "g_humanplayers": "1"}
		switch {
		case command == "getstatus":
			s := quake3.Status{Info: info}
			for _, ping := range pings {
				s.Players = append(s.Players, quake3.Player{Ping: ping, Name: "Hazel"})
			}
			return [][]byte{quake3.AppendStatus(nil, quake3.Status{Info: late}), quake3.AppendStatus(nil, s)}
		case command == "getinfo" && settings != nil:
			maps.Copy(info, settings)
			return [][]byte{quake3.AppendInfo(nil, late), quake3.AppendInfo(nil, info)}
		}
		t.Errorf("asked %q", request)
		return nil
	})
}

func TestQuake3CountsPeople(t *testing.T) {
	for name, c := range map[string]struct {
		settings quake3.Info
		pings    []int
		want     int
	}{
		"nobody":                                {nil, nil, 0},
		"people only, whom it need not ask for": {nil, []int{40, 999, 12}, 3},
		"bots, by the number of people":         {quake3.Info{"g_humanplayers": "0"}, []int{0, 0}, 0},
		"both, by the number of people":         {quake3.Info{"g_humanplayers": "1"}, []int{0, 40, 0}, 1},
		"a person who is near":                  {quake3.Info{"g_humanplayers": "2"}, []int{0, 40, 0}, 2},
		"more come in meanwhile":                {quake3.Info{"g_humanplayers": "5"}, []int{0}, 5},
		"fewer people than pings":               {quake3.Info{"g_humanplayers": "0"}, []int{0, 40, 50}, 2},
		"both, by the number of bots":           {quake3.Info{"bots": "2"}, []int{0, 40, 0, 0}, 2},
		"more bots than players":                {quake3.Info{"bots": "9"}, []int{0, 0}, 0},
		"a game that doesn't tell":              {quake3.Info{}, []int{0, 40, 0}, 3},
		"a game that tells nonsense":            {quake3.Info{"g_humanplayers": "-1", "bots": "x"}, []int{0, 40, 0}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			wantStatus(t, Quake3, idTech(t, c.settings, c.pings...), Status{Players: c.want, Capacity: 20, Version: "ioq3", Name: "^1Warren"})
		})
	}
}

func TestQuake3WithoutACapacityIsAnError(t *testing.T) {
	wantError(t, Quake3, datagrams(t, func([]byte) [][]byte {
		return [][]byte{quake3.AppendStatus(nil, quake3.Status{Info: quake3.Info{"sv_hostname": "Warren"}})}
	}), "no number of players")
}
