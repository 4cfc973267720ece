package dataplane

import (
	"fmt"
	"strings"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	quake3wire "dormouse.dev/dormouse/internal/gameproto/quake3"
	sourcewire "dormouse.dev/dormouse/internal/gameproto/source"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestAnswersToWhoMayBeElsewhereAreBounded(t *testing.T) {
	for protocol, query := range map[v1alpha1.Protocol]string{v1alpha1.ProtocolBedrock: "ping", v1alpha1.ProtocolQuake3: "getstatus"} {
		t.Run(string(protocol), func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.UDP, speaks(protocol), guarded(guard.Rules{}))
			c := from(t, here, route.UDP, address)
			text := recorded(t, protocol, query)
			const asked = 300
			for range asked {
				write(t, c, text)
			}
			r.eventually("all are judged", func() bool { return r.answered()+r.refused(proto.AnswerRate) == asked })
			// 50 at once, and ten a second.
			if got := r.answered(); got < 50 || got > 100 {
				t.Errorf("%v of %d queries were answered", got, asked)
			}
			// Another network isn't hurt.
			other := from(t, "127.0.9.1", route.UDP, address)
			write(t, other, text)
			receive(t, other)
			r.undisturbed()
		})
	}
}

func TestChallengesAreGivenToAll(t *testing.T) {
	r := newRig(t)
	c := from(t, here, route.UDP, r.serve("game", route.UDP, speaks(v1alpha1.ProtocolSource), guarded(guard.Rules{})))
	text := recorded(t, v1alpha1.ProtocolSource, "info_first")
	for range 300 {
		write(t, c, text)
		challenge, err := sourcewire.ParseAnswer(receive(t, c))
		if err != nil || challenge.Challenge == nil {
			t.Fatalf("got %+v, %v", challenge, err)
		}
		write(t, c, string(sourcewire.AppendInfoRequest(nil, challenge.Challenge)))
		if info, err := sourcewire.ParseAnswer(receive(t, c)); err != nil || info.Info == nil {
			t.Fatalf("got %+v, %v", info, err)
		}
	}
}

func TestWhereAnythingWakesAQueryMustStillBeProven(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP, speaks(v1alpha1.ProtocolSource), func(p *route.Port) { p.WakeOnConnect = true })
	c := dialUDP(t, address)
	write(t, c, recorded(t, v1alpha1.ProtocolSource, "info_first"))
	challenge, err := sourcewire.ParseAnswer(receive(t, c))
	if err != nil || challenge.Challenge == nil {
		t.Fatalf("got %+v, %v", challenge, err)
	}
	// Somebody else's doesn't do.
	other := dialUDP(t, address)
	validated := string(sourcewire.AppendInfoRequest(nil, challenge.Challenge))
	write(t, other, validated)
	receive(t, other)
	r.undisturbed()
	write(t, c, validated)
	r.queued(1)
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	r.backend(server, true)
	hear(t, c, "re:"+validated)
	write(t, other, "a game's own")
	hear(t, other, "re:a game's own")
}

func TestQueriesOfAllLengthsGetSmallAnswers(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP, speaks(v1alpha1.ProtocolQuake3))
	for n := range 8 {
		c := dialUDP(t, address)
		write(t, c, fmt.Sprintf("\xff\xff\xff\xffgetstatus %s", strings.Repeat("c", 1<<n)))
		got := receive(t, c)
		if _, err := quake3wire.ParseStatus(got); err != nil || len(got) > guard.MaxUnvalidated {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
}
