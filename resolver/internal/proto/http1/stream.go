package http1

import (
	"bytes"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// maxLine bounds how much is kept of an unfinished line, except for a head whose Host is
// wanted.
const maxLine = 1 << 10

// stage is where in a message a stream is.
type stage int

const (
	// atStart is before a message's first line.
	atStart stage = iota
	// inFields is after it.
	inFields
	// inBody is in a body, or in a chunk's bytes.
	inBody
	inChunk
	// afterChunk is before the line's end after them.
	afterChunk
	// atChunk is before a chunk's size.
	atChunk
	// inTrailer is after the last chunk.
	inTrailer
)

// event is what a stream has reached.
type event int

const (
	// nothing means that all was taken in, and nothing was reached.
	nothing event = iota
	// headEnd is the end of a head. The caller decides which body follows.
	headEnd
	// messageEnd is the end of a body.
	messageEnd
	// broken means that the bytes are not plain HTTP/1.
	broken
)

// stream follows one direction of a connection from message to message. It keeps one line at
// most.
type stream struct {
	// first reads a message's first line.
	first func(line []byte) bool
	stage stage
	// framing is that of the message's head.
	framing framing
	// left is how much of a body or a chunk is still to come.
	left int64
	// keepsHost is set where the head's Host is wanted at its end.
	keepsHost bool
	// pending is the beginning of a line that isn't finished.
	pending []byte
	// passing is set while the rest of a long line is skipped, and carriage while what came of
	// it ends in a carriage return.
	passing, carriage bool
}

// atRest reports whether the stream is between two messages.
func (s *stream) atRest() bool { return s.stage == atStart && s.pending == nil }

// inHead reports whether what comes next is part of a message's head.
func (s *stream) inHead() bool { return s.stage == atStart || s.stage == inFields }

// take takes in what b begins with, up to an event, and returns the rest.
func (s *stream) take(b []byte) (rest []byte, e event) {
	for len(b) > 0 {
		if s.stage == inBody || s.stage == inChunk {
			n := min(s.left, int64(len(b)))
			if b = b[n:]; s.skip(n) {
				return b, messageEnd
			}
			continue
		}
		line, rest, e := s.cutLine(b)
		if b = rest; e == headEnd { // a line's end
			e = s.line(line)
		}
		if e != nothing {
			return b, e
		}
	}
	return nil, nothing
}

// skip skips n bytes of a body; true: the body ended with them.
func (s *stream) skip(n int64) bool {
	if s.left -= n; s.left > 0 {
		return false
	}
	if s.stage == inChunk {
		s.stage = afterChunk
		return false
	}
	s.stage = atStart
	return true
}

// line takes in a whole line.
func (s *stream) line(line []byte) event {
	switch s.stage {
	case atStart:
		s.framing = framing{}
		if !s.first(line) {
			return broken
		}
		s.stage = inFields
	case inFields, inTrailer:
		if len(line) == 0 {
			ended := s.stage
			s.stage = atStart
			if ended == inTrailer {
				return messageEnd
			}
			return headEnd
		}
		name, value, ok := field(line)
		if !ok {
			return broken
		}
		if s.stage == inFields {
			s.framing.add(name, value)
			if s.keepsHost && is(name, "Host") {
				s.framing.host = bytes.Clone(value) // its buffer is used again
			}
		}
	case atChunk:
		size, ok := chunkSize(line)
		if !ok {
			return broken
		}
		s.left, s.stage = size, inChunk
		if size == 0 {
			s.stage = inTrailer
		}
	case afterChunk:
		if len(line) > 0 {
			return broken
		}
		s.stage = atChunk
	case inBody, inChunk:
	}
	return nothing
}

// body reports whether a body follows a head; otherwise the message is over.
func (s *stream) body() bool {
	switch {
	case s.framing.chunked:
		s.stage = atChunk
	case s.framing.length > 0:
		s.stage, s.left = inBody, s.framing.length
	default:
		return false
	}
	return true
}

// cutLine cuts a line off b; its beginning may be pending. The event headEnd stands for the
// line's end.
func (s *stream) cutLine(b []byte) (line, rest []byte, e event) {
	if s.passing {
		return s.pass(b)
	}
	i := bytes.IndexByte(b, '\n')
	if i >= 0 && s.pending == nil {
		line, rest, _ = cutLine(b)
		return line, rest, headEnd
	}
	part := b
	if i >= 0 {
		part = b[:i+1]
	}
	most := maxLine
	if s.keepsHost && s.inHead() {
		// The whole head is kept until it has ended, in any case.
		most = proto.MaxHead
	}
	if len(s.pending)+len(part) > most {
		return s.passLong(b)
	}
	s.pending = append(s.pending, part...)
	if i < 0 {
		return nil, nil, nothing
	}
	line, _, _ = cutLine(s.pending)
	s.pending = nil
	return line, b[i+1:], headEnd
}

// passLong begins to skip a line that is longer than maxLine. It has to be a field that does
// not affect the message's framing.
func (s *stream) passLong(b []byte) (line, rest []byte, e event) {
	head := s.pending
	whole := append(bytes.Clone(head), b[:min(len(b), maxLine)]...)
	name, _, found := bytes.Cut(whole, []byte(":"))
	if s.stage != inFields && s.stage != inTrailer || !found || !isToken(name) || matters(name) {
		return nil, nil, broken
	}
	s.pending, s.passing, s.carriage = nil, true, false
	colon := len(name) + 1
	if kept := len(head); colon < kept {
		if _, _, e := s.pass(head[colon:]); e != nothing {
			return nil, nil, broken
		}
		return s.pass(b)
	}
	return s.pass(b[colon-len(head):])
}

// pass skips the rest of a long line, which has to be as valid as any other.
func (s *stream) pass(b []byte) (line, rest []byte, e event) {
	for i, c := range b {
		switch {
		case c == '\n' && s.carriage:
			s.passing = false
			return nil, b[i+1:], nothing
		case s.carriage, c != '\r' && !isValue(b[i:i+1]):
			return nil, nil, broken
		}
		s.carriage = c == '\r'
	}
	return nil, nil, nothing
}
