// Package quake3 has the format of the status queries of Quake 3 and the many games that come
// from it: the client's question and the server's answer, both read and written. It handles
// bytes only; sockets and timeouts are its callers'.
package quake3

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	mark       = "\xff\xff\xff\xff"
	statusHead = "statusResponse\n"
	infoHead   = "infoResponse\n"
	// maxPairs bounds a server's variables, and maxPlayers its players. No game of the family
	// has so many.
	maxPairs   = 512
	maxPlayers = 1024
)

// Info is a server's variables and their values. The names are as the server sent them.
type Info map[string]string

// Variables that are the same in every game of the family.
const (
	// VarChallenge is the request's challenge.
	VarChallenge = "challenge"
	// VarName is the server's name, colours and all.
	VarName = "sv_hostname"
	// VarCapacity is how many may play.
	VarCapacity = "sv_maxclients"
	// VarVersion is the engine's version.
	VarVersion = "version"
	// VarHumans is how many players are no bots; ioquake3 and its descendants have it in an
	// info, others nowhere.
	VarHumans = "g_humanplayers"
	// VarBots is how many bots play; DarkPlaces and QFusion have it.
	VarBots = "bots"
)

// Number is the value of a variable that is a number from 0 on. ok is false where the variable
// is missing or something else.
func (i Info) Number(name string) (n int, ok bool) {
	value, err := strconv.ParseUint(i[name], 10, 31)
	return int(value), err == nil
}

// Player is a player, perhaps a bot.
type Player struct {
	Score int
	// Ping is in milliseconds. It is 0 for bots, and 999 for a player who is still connecting.
	Ping int
	// Name is as the server sent it. Empty: it is empty, or the line is [Unreadable].
	Name string
}

// Unreadable is a player whose line is cut off, or of a form that is in no game known here. It counts as a
// player.
var Unreadable = Player{Ping: -1}

// Status is an answer to getstatus.
type Status struct {
	Info    Info
	Players []Player
}

// ParseStatus reads an answer to getstatus.
func ParseStatus(b []byte) (Status, error) {
	rest, ok := bytes.CutPrefix(b, []byte(mark+statusHead))
	if !ok {
		return Status{}, errors.New("parse status: it lacks the head of one")
	}
	variables, lines, _ := bytes.Cut(rest, []byte("\n"))
	info, err := parseInfo(variables)
	if err != nil {
		return Status{}, fmt.Errorf("parse status: %w", err)
	}
	s := Status{Info: info}
	for line := range bytes.Lines(lines) {
		// Some end with a zero byte.
		line = bytes.TrimRight(line, "\r\n\x00")
		if len(line) == 0 {
			continue
		}
		if len(s.Players) == maxPlayers {
			return Status{}, fmt.Errorf("parse status: more than %d players", maxPlayers)
		}
		s.Players = append(s.Players, parsePlayer(string(line)))
	}
	return s, nil
}

// ParseInfo reads an answer to getinfo.
func ParseInfo(b []byte) (Info, error) {
	rest, ok := bytes.CutPrefix(b, []byte(mark+infoHead))
	if !ok {
		return nil, errors.New("parse info: it lacks the head of one")
	}
	info, err := parseInfo(bytes.TrimRight(rest, "\r\n\x00"))
	if err != nil {
		return nil, fmt.Errorf("parse info: %w", err)
	}
	return info, nil
}

// parseInfo reads names and values, each with a backslash before it.
func parseInfo(b []byte) (Info, error) {
	info := Info{}
	rest, ok := bytes.CutPrefix(b, []byte(`\`))
	if !ok && len(b) > 0 {
		return nil, errors.New("the variables don't begin with a backslash")
	}
	for len(rest) > 0 {
		if len(info) == maxPairs {
			return nil, fmt.Errorf("more than %d variables", maxPairs)
		}
		name, after, ok := bytes.Cut(rest, []byte(`\`))
		if !ok {
			return nil, fmt.Errorf("variable %.32q has no value", name)
		}
		var value []byte
		value, rest, _ = bytes.Cut(after, []byte(`\`))
		info[string(name)] = string(value)
	}
	return info, nil
}

// parsePlayer reads a player's line: score, ping, fields that a game adds, the name in quotation marks, and
// fields that other games add, such as QFusion's team.
func parsePlayer(line string) Player {
	begin, end := strings.IndexByte(line, '"'), strings.LastIndexByte(line, '"')
	if begin == end {
		return Unreadable
	}
	fields := strings.Fields(line[:begin])
	if len(fields) < 2 {
		return Unreadable
	}
	score, err := strconv.ParseInt(fields[0], 10, 32)
	if err != nil {
		return Unreadable
	}
	ping, err := strconv.ParseInt(fields[1], 10, 32)
	if err != nil {
		return Unreadable
	}
	return Player{Score: int(score), Ping: int(ping), Name: line[begin+1 : end]}
}
