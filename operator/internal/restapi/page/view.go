package page

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"dormouse.dev/dormouse/operator/internal/text"
)

// longest bounds in characters what others wrote: names, reasons and messages.
const (
	longestName    = 120
	longestMessage = 600
)

// view is a server as templates and the script have it: all text is ready to be shown.
type view struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Game  string `json:"game"`
	State string `json:"state"`
	// Tone is which colour the state has: good, busy, bad, asleep or off.
	Tone    string `json:"tone"`
	Why     string `json:"why"`
	Sleep   string `json:"sleep"`
	Since   string `json:"since"`
	Kept    string `json:"kept"`
	Players string `json:"players"`
	Address string `json:"address"`
	Ports   string `json:"ports"`
	RAM     string `json:"ram"`
	Disk    string `json:"disk"`
	Saved   string `json:"saved"`
	Created string `json:"created"`

	CanStart bool `json:"canStart"`
	CanStop  bool `json:"canStop"`
	CanWake  bool `json:"canWake"`
}

func viewOf(s *Server) view {
	v := view{
		ID: s.ID, Name: text.Plain(s.Name, longestName), Game: text.Plain(s.Game, longestName),
		State: text.Plain(s.State, longestName), Tone: tone(s), Why: text.Plain(s.Why, longestMessage),
		Since: machineTime(s.Since), Kept: humanTime(s.KeptAwakeUntil), Players: playersText(s),
		RAM: s.RAM, Disk: s.Disk, Saved: text.Plain(s.Saved, longestName), Created: humanTime(s.Created),
		CanStart: !s.Running, CanStop: s.Running, CanWake: s.Running && s.Asleep,
	}
	v.Address, v.Ports = addressTexts(s)
	if v.Name == "" {
		v.Name = "Server " + strconv.FormatInt(s.ID, 10)
	}
	switch {
	case s.Asleep:
		v.Sleep = "Asleep"
	case s.Running:
		v.Sleep = "Awake"
	default:
		v.Since = ""
	}
	return v
}

func tone(s *Server) string {
	switch s.State {
	case "Ready", "Allocated", "Reserved", "Awake":
		return "good"
	case "Unhealthy":
		return "bad"
	case "Asleep":
		return "asleep"
	case "Stopped":
		return "off"
	default:
		return "busy"
	}
}

func playersText(s *Server) string {
	switch {
	case s.Players == nil:
		return "–"
	case s.Capacity > 0:
		return fmt.Sprintf("%d of %d", *s.Players, s.Capacity)
	default:
		return strconv.Itoa(*s.Players)
	}
}

// addressTexts are what a player types, and the ports where there are several.
func addressTexts(s *Server) (address, ports string) {
	if s.Address == "" {
		return "", ""
	}
	address = text.Plain(s.Address, longestName)
	if len(s.Ports) == 1 {
		address = net.JoinHostPort(address, strconv.Itoa(s.Ports[0].Number))
	}
	list := make([]string, 0, len(s.Ports))
	for _, p := range s.Ports {
		port := strings.TrimSpace(fmt.Sprintf("%s %d", text.Plain(p.Name, longestName), p.Number))
		if p.Protocol != "" {
			port += "/" + p.Protocol
		}
		list = append(list, port)
	}
	return address, strings.Join(list, ", ")
}

// eventView is an event as templates and the script have it.
type eventView struct {
	ID      string `json:"id"`
	When    string `json:"when"`
	Text    string `json:"text"`
	Reason  string `json:"reason"`
	Kind    string `json:"kind"`
	Machine string `json:"machine"`
}

func eventViewOf(e *Event) eventView {
	v := eventView{
		ID: e.ID, When: humanTime(e.When), Machine: machineTime(e.When),
		Text: text.Plain(e.Message, longestMessage), Reason: text.Plain(e.Reason, longestName), Kind: "normal",
	}
	if e.Warning {
		v.Kind = "warning"
	}
	if e.Count > 1 {
		v.Text += fmt.Sprintf(" (%d times)", e.Count)
	}
	return v
}

func machineTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func humanTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2 Jan 15:04:05") + " UTC"
}

// seconds writes how long something took, to what one can see.
func seconds(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}

// lowerFirst is for sentences that go on after a colon.
func lowerFirst(s string) string { return text.LowerFirst(s) }
