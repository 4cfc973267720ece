package dataplane

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// attackEnv makes the test's program an attacker: what follows is the attack, the
// address that it is for, and what it sends in hexadecimal digits.
const attackEnv = "DORMOUSE_TEST_ATTACK"

// What attackers do in a second. More would tell how the machine's processors are
// shared, and not what the resolver's services do to each other.
const (
	connectionsASecond = 2000
	datagramsASecond   = 20_000
	hugeASecond        = 1000
)

// attacks go on until the program's standard input ends.
var attacks = map[string]func(ctx context.Context, address, text string){
	"connections": func(ctx context.Context, address, text string) {
		limit := rate.NewLimiter(connectionsASecond, connectionsASecond/10)
		var kept []net.Conn
		for limit.Wait(ctx) == nil {
			c, err := net.Dial("tcp", address)
			if err != nil {
				continue
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_, _ = io.WriteString(c, text)
			if kept = append(kept, c); len(kept) > 5000 {
				_ = kept[0].Close()
				kept = kept[1:]
			}
		}
	},
	"datagrams": func(ctx context.Context, address, text string) {
		forge(ctx, address, text, rate.NewLimiter(datagramsASecond, datagramsASecond/100))
	},
	"huge": func(ctx context.Context, address, _ string) {
		forge(ctx, address, strings.Repeat("x", 65_507), rate.NewLimiter(hugeASecond, hugeASecond/100))
	},
	"unread": func(ctx context.Context, address, text string) {
		for range 10 {
			if c, err := net.Dial("tcp", address); err == nil {
				_, _ = io.WriteString(c, text)
			}
		}
		<-ctx.Done()
	},
}

func forge(ctx context.Context, address, text string, limit *rate.Limiter) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		panic(err)
	}
	to := netip.MustParseAddrPort(address)
	for i := 0; limit.Wait(ctx) == nil; i++ {
		info := unix.Inet4Pktinfo{Spec_dst: [4]byte{127, byte(1 + i>>16%100), byte(i >> 8), byte(i)}}
		_, _, err := c.WriteMsgUDPAddrPort([]byte(text), unix.PktInfo4(&info), to)
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			panic(err)
		}
	}
}

func attack() {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	what := strings.SplitN(os.Getenv(attackEnv), " ", 3)
	text, err := hex.DecodeString(what[2])
	if err != nil {
		panic(err)
	}
	attacks[what[0]](ctx, what[1], string(text))
}

// attackWith starts an attacker.
func attackWith(b *testing.B, kind, address, text string) (stop func()) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), attackEnv+"="+kind+" "+address+" "+hex.EncodeToString([]byte(text)))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// Bystanders' messages: so many players send one so often, for so long.
const (
	bystanders   = 20
	messageEvery = 10 * time.Millisecond
	phaseTime    = time.Second
	settleTime   = 300 * time.Millisecond
	rounds       = 5
)

// p99 is how long the slowest of a hundred of the bystanders' messages take.
func p99(b *testing.B, players []net.Conn) time.Duration {
	b.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for i, c := range players {
		wg.Go(func() {
			var took []time.Duration
			message := make([]byte, 64)
			ticker := time.NewTicker(messageEvery + time.Duration(i)*100*time.Microsecond)
			defer ticker.Stop()
			for until := time.Now().Add(phaseTime); time.Now().Before(until); <-ticker.C {
				sent := time.Now()
				_ = c.SetDeadline(sent.Add(patience))
				if _, err := c.Write(message); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(c, message); err != nil {
					b.Error(err)
					return
				}
				took = append(took, time.Since(sent))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// BenchmarkOthersUnderAttack tells what players of one service notice of attacks on
// another: the 99th percentile of their messages' times while all is calm and while
// it isn't, in turns, the medians of five.
func BenchmarkOthersUnderAttack(b *testing.B) {
	login := recorded(b, v1alpha1.ProtocolMinecraft, "login_765")
	limited := func(rules guard.Rules) func(*route.Route) {
		return func(r *route.Route) { guarded(rules)(&r.Ports[0]) }
	}
	endless := freeAddress(b, route.TCP)
	listenTCP(b, endless, func(c *net.TCPConn) {
		chunk := make([]byte, 64<<10)
		for {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	})
	for name, c := range map[string]struct {
		protocol v1alpha1.Protocol
		with     func(*route.Route)
		kind     string
		text     string
	}{
		"slow handshakes":           {v1alpha1.ProtocolMinecraft, limited(guard.Rules{}), "connections", login[:3]},
		"a crowd that is held":      {v1alpha1.ProtocolTCP, limited(guard.Rules{}), "connections", "x"},
		"a crowd from one source":   {v1alpha1.ProtocolTCP, limited(guard.Rules{PerSource: guard.Limits{Sessions: 50}}), "connections", "x"},
		"forged wakes":              {v1alpha1.ProtocolUDP, limited(guard.Rules{PerSourceRate: 1, PerServiceRate: 100}), "datagrams", "x"},
		"forged wakes, no rate":     {v1alpha1.ProtocolUDP, limited(guard.Rules{}), "datagrams", "x"},
		"forged queries":            {v1alpha1.ProtocolQuake3, limited(guard.Rules{}), "datagrams", "\xff\xff\xff\xffgetstatus"},
		"huge datagrams":            {v1alpha1.ProtocolUDP, limited(guard.Rules{}), "huge", ""},
		"clients that never read":   {v1alpha1.ProtocolTCP, awakeAt(endless), "unread", "x"},
		"nonsense to a game's port": {v1alpha1.ProtocolMinecraft, limited(guard.Rules{}), "connections", "GET / HTTP/1.1\r\n\r\n"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				h := newHost(b)
				address := h.serve(attacked, c.protocol, c.with)
				players := make([]net.Conn, bystanders)
				for i := range players {
					players[i] = from(b, "127.0.0.3", route.TCP, h.players[0].RemoteAddr().String())
				}
				p99(b, players)
				var calm, under []time.Duration
				for range rounds {
					calm = append(calm, p99(b, players))
					stop := attackWith(b, c.kind, address, c.text)
					<-time.After(settleTime)
					under = append(under, p99(b, players))
					stop()
					<-time.After(settleTime)
				}
				slices.Sort(calm)
				slices.Sort(under)
				b.ReportMetric(float64(calm[rounds/2].Microseconds()), "calm-p99-µs")
				b.ReportMetric(float64(under[rounds/2].Microseconds()), "attacked-p99-µs")
				b.ReportMetric(float64(under[rounds/2])/float64(calm[rounds/2]), "ratio")
				b.ReportMetric(0, "ns/op")
				f := h.fares()
				b.Logf("%d carried, %d KiB, refused %v", f.Clients, f.Memory>>10, f.Refused)
			}
		})
	}
}
