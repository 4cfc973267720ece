// Package source has the format of the query protocol of Valve's games, which many others speak
// too: a client's request for a server's info and the server's answer, both read and written.
// It handles bytes only; sockets and timeouts are its callers'. The format is described at
// https://developer.valvesoftware.com/wiki/Server_queries.
package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The numbers of the messages.
const (
	infoRequest  = 'T'
	infoAnswer   = 'I'
	goldAnswer   = 'm'
	challengeMsg = 'A'
)

const (
	whole    = "\xff\xff\xff\xff"
	part     = "\xfe\xff\xff\xff"
	infoText = "Source Engine Query\x00"
	// theShip is a game whose info has three additional bytes.
	theShip = 2400
	// maxString bounds a string of an info, in bytes.
	maxString = 1024
)

// Optional fields of an info, by the bits of its extra data flag.
const (
	extraPort      = 0x80
	extraSteamID   = 0x10
	extraSpectator = 0x40
	extraKeywords  = 0x20
	extraGameID    = 0x01
)

// Challenge is what a client must repeat before a server answers.
type Challenge [4]byte

// Info is what a server reports to clients that refresh a server list.
type Info struct {
	Protocol                uint8
	Name, Map, Folder, Game string
	AppID                   uint16
	// Players counts the bots too.
	Players, Capacity, Bots uint8
	// Type is d for a dedicated server, l for a server on a player's machine, p for a relay.
	Type byte
	// OS is l, w, or m or o for macOS.
	OS byte
	// Password is set where players need one, and Secure where cheaters are kept out.
	Password, Secure bool
	Version          string
	// Port is the port of the game; 0 is unknown.
	Port uint16
	// Keywords are the game's own.
	Keywords string
	// GameID is the whole of AppID, of which an info has only the low bits; 0 is unknown.
	GameID uint64
}

// Humans is how many play without the bots. A server that reports more bots than players
// doesn't count them among its players, so all of those are humans.
func (i Info) Humans() int {
	if i.Bots > i.Players {
		return int(i.Players)
	}
	return int(i.Players) - int(i.Bots)
}

// Answer is a server's answer to a request for its info: the info, or a
// challenge to send along with the request.
type Answer struct {
	Info      *Info
	Challenge *Challenge
}

// IsPart reports whether a datagram is a part of an answer, for [ParsePart].
func IsPart(b []byte) bool { return bytes.HasPrefix(b, []byte(part)) }

// ParseAnswer reads an answer in one datagram, or one that [Parts] put
// together.
func ParseAnswer(b []byte) (Answer, error) {
	r := reader{rest: b}
	if string(r.take(len(whole))) != whole {
		return Answer{}, errors.New("parse answer: it lacks the mark of a whole one")
	}
	switch kind := r.byte(); {
	case r.err != nil:
		return Answer{}, fmt.Errorf("parse answer: %w", r.err)
	case kind == challengeMsg:
		challenge := Challenge{}
		copy(challenge[:], r.take(len(challenge)))
		if r.err != nil {
			return Answer{}, fmt.Errorf("parse challenge: %w", r.err)
		}
		return Answer{Challenge: &challenge}, nil
	case kind == infoAnswer:
		info := parseInfo(&r)
		if r.err != nil {
			return Answer{}, fmt.Errorf("parse info: %w", r.err)
		}
		return Answer{Info: &info}, nil
	case kind == goldAnswer:
		return Answer{}, errors.New("parse answer: it has the form that GoldSource servers used before 2008")
	default:
		return Answer{}, fmt.Errorf("parse answer: message %#02x is neither an info nor a challenge", kind)
	}
}

func parseInfo(r *reader) Info {
	i := Info{Protocol: r.byte(), Name: r.string(), Map: r.string(), Folder: r.string(), Game: r.string()}
	i.AppID = r.uint16()
	i.Players, i.Capacity, i.Bots = r.byte(), r.byte(), r.byte()
	i.Type, i.OS = r.byte(), r.byte()
	i.Password, i.Secure = r.byte() != 0, r.byte() != 0
	if i.AppID == theShip {
		r.take(3)
	}
	i.Version = r.string()
	if r.err != nil || len(r.rest) == 0 {
		return i
	}
	extra := r.byte()
	if extra&extraPort != 0 {
		i.Port = r.uint16()
	}
	if extra&extraSteamID != 0 {
		r.take(8)
	}
	if extra&extraSpectator != 0 {
		r.take(2)
		r.string()
	}
	if extra&extraKeywords != 0 {
		i.Keywords = r.string()
	}
	if extra&extraGameID != 0 {
		if b := r.take(8); b != nil {
			i.GameID = binary.LittleEndian.Uint64(b)
		}
	}
	return i
}

// reader reads values from the front of bytes. Its first error stays, and what is read after it
// is zero.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) take(n int) []byte {
	if r.err == nil && n > len(r.rest) {
		r.err = fmt.Errorf("it ends %d bytes too early", n-len(r.rest))
	}
	if r.err != nil {
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) string() string {
	if r.err != nil {
		return ""
	}
	end := bytes.IndexByte(r.rest[:min(len(r.rest), maxString+1)], 0)
	if end < 0 {
		r.err = fmt.Errorf("a string doesn't end within %d bytes", min(len(r.rest), maxString))
		return ""
	}
	s := string(r.rest[:end])
	r.rest = r.rest[end+1:]
	return s
}
