package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

const (
	// maxParts bounds into how many datagrams an answer is split. An info fits into one, or two
	// with many keywords.
	maxParts = 8
	// maxPart bounds the bytes of a part. Servers fill about 1,400.
	maxPart = 4096
	// compressed is the bit of an answer's number that is set where it is compressed.
	compressed = 1 << 31
)

// Part is one of the datagrams of a long answer.
type Part struct {
	// ID is the same in all parts of an answer.
	ID uint32
	// Total is how many there are, and Number the index of this one, from 0.
	Total, Number int
	// Payload is a part of the answer's bytes; it is not a copy.
	Payload []byte
}

// ParsePart reads a part in the form that the Source engine has had since 2007.
// Compressed answers, which no info is long enough for, are an error.
func ParsePart(b []byte) (Part, error) {
	r := reader{rest: b}
	if string(r.take(len(part))) != part {
		return Part{}, errors.New("parse part: it lacks the mark of one")
	}
	id := r.take(4)
	total, number := int(r.byte()), int(r.byte())
	// The size at which the server splits; the parts' own sizes say more.
	r.take(2)
	if r.err != nil {
		return Part{}, fmt.Errorf("parse part: %w", r.err)
	}
	p := Part{ID: binary.LittleEndian.Uint32(id), Total: total, Number: number, Payload: r.rest}
	switch {
	case p.ID&compressed != 0:
		return Part{}, errors.New("parse part: compressed answers are not understood")
	case total < 1 || total > maxParts || number >= total:
		return Part{}, fmt.Errorf("parse part: number %d of %d can't be, or is one of too many", number, total)
	case len(p.Payload) == 0 || len(p.Payload) > maxPart:
		return Part{}, fmt.Errorf("parse part: %d bytes are none or too many", len(p.Payload))
	}
	return p, nil
}

// Parts puts an answer together. The zero value is ready.
type Parts struct {
	id       uint32
	payloads [][]byte
	missing  int
}

// Add takes a part, in any order, and returns the whole answer after the last one. A part of
// another answer is an error; a repeated part changes nothing.
func (p *Parts) Add(one Part) ([]byte, error) {
	if one.Total < 1 || one.Total > maxParts || one.Number < 0 {
		return nil, fmt.Errorf("put parts together: part %d of %d can't be", one.Number, one.Total)
	}
	if p.payloads == nil {
		p.id, p.payloads, p.missing = one.ID, make([][]byte, one.Total), one.Total
	}
	if one.ID != p.id || one.Total != len(p.payloads) || one.Number >= one.Total {
		return nil, fmt.Errorf("put parts together: part %d of %d belongs to another answer", one.Number, one.Total)
	}
	if p.payloads[one.Number] == nil {
		p.payloads[one.Number] = slices.Clone(one.Payload)
		p.missing--
	}
	if p.missing > 0 {
		return nil, nil
	}
	return slices.Concat(p.payloads...), nil
}
