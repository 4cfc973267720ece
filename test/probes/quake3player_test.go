package probes

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// joinQuake3 connects a player to a Quake 3 server, who comes no further than
// being connected: the server counts them, with a ping of 999, until it kicks
// them.
func joinQuake3(t *testing.T, port int, name string) {
	t.Helper()
	conn, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	const mark = "\xff\xff\xff\xff"
	reply := quake3Reply(t, conn, []byte(mark+"getchallenge 1 Quake3Arena"), mark+"challengeResponse ")
	challenge := strings.Fields(reply)[0]
	info := strings.Join([]string{"", "challenge", challenge, "qport", "1", "protocol", "71", "name", name, "rate", "25000", "cl_guid", strings.Repeat("0F", 16)}, `\`)
	// What follows the first word is compressed.
	connect := append([]byte(mark+"connect "), compress([]byte(`"`+info+`"`))...)
	quake3Reply(t, conn, connect, mark+"connectResponse")
}

// quake3Reply sends until the reply that begins with head comes, and returns
// the rest of it.
func quake3Reply(t *testing.T, conn net.Conn, request []byte, head string) string {
	t.Helper()
	buffer := make([]byte, 16<<10)
	for range 20 {
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		n, err := conn.Read(buffer)
		if err != nil {
			continue
		}
		if rest, ok := bytes.CutPrefix(buffer[:n], []byte(head)); ok {
			return string(rest)
		}
		t.Logf("the server says %q", buffer[:n])
	}
	t.Fatalf("the server doesn't say %q", head)
	return ""
}

// compress writes bytes with the adaptive Huffman code that Quake 3 uses for
// connecting: both sides begin with an empty tree and grow it alike. A byte
// that is new is written as the code of the leaf that stands for all new ones,
// and its 8 bits.
func compress(b []byte) []byte {
	unseen := &leaf{}
	h := &huffman{unseen: unseen, order: []*leaf{unseen}, of: map[byte]*leaf{}}
	h.bits(uint(len(b)>>8), 8, false)
	h.bits(uint(len(b)&0xff), 8, false)
	for _, c := range b {
		if l := h.of[c]; l != nil {
			h.path(l)
			h.grow(l)
			continue
		}
		h.path(h.unseen)
		h.bits(uint(c), 8, true)
		h.add(c)
	}
	// The server wants a byte more than there are bits for.
	h.bits(0, 8, false)
	return h.out
}

// leaf is a node of the tree, and all but the leaves have two below them.
type leaf struct {
	weight            int
	rank              int
	parent, zero, one *leaf
}

// huffman keeps its nodes in an order in which weights never fall.
type huffman struct {
	unseen *leaf
	order  []*leaf
	of     map[byte]*leaf
	out    []byte
	used   int
}

// bits writes the low bits of a value, the lowest first unless turned. Within a
// byte, the lowest bit comes first.
func (h *huffman) bits(value uint, count int, turned bool) {
	for i := range count {
		if turned {
			i = count - 1 - i
		}
		if h.used%8 == 0 {
			h.out = append(h.out, 0)
		}
		h.out[h.used/8] |= byte(value>>i&1) << (h.used % 8)
		h.used++
	}
}

// path writes the way from the root to a node.
func (h *huffman) path(l *leaf) {
	if l.parent == nil {
		return
	}
	h.path(l.parent)
	if l.parent.one == l {
		h.bits(1, 1, false)
	} else {
		h.bits(0, 1, false)
	}
}

// add puts a new byte where the new ones' leaf is, which moves below.
func (h *huffman) add(c byte) {
	fork, l := &leaf{weight: 1, parent: h.unseen.parent, zero: h.unseen}, &leaf{weight: 1}
	fork.one, l.parent, h.of[c] = l, fork, l
	if fork.parent != nil {
		fork.parent.replace(h.unseen, fork)
	}
	h.unseen.parent = fork
	h.order = append([]*leaf{h.unseen, l, fork}, h.order[1:]...)
	for i, l := range h.order {
		l.rank = i
	}
	h.grow(fork.parent)
}

// grow makes a node heavier, and all above it, and keeps the order.
func (h *huffman) grow(l *leaf) {
	if l == nil {
		return
	}
	last := l
	for last.rank+1 < len(h.order) && h.order[last.rank+1].weight == l.weight {
		last = h.order[last.rank+1]
	}
	if last != l {
		if last != l.parent {
			a, b := l.parent, last.parent
			// Two nodes below the same one change sides.
			if a == b {
				a.zero, a.one = a.one, a.zero
			} else {
				if a != nil {
					a.replace(l, last)
				}
				if b != nil {
					b.replace(last, l)
				}
				l.parent, last.parent = b, a
			}
		}
		h.swap(l, last)
	}
	l.weight++
	h.grow(l.parent)
	if l.rank > 0 && h.order[l.rank-1] == l.parent {
		h.swap(l, l.parent)
	}
}

func (h *huffman) swap(a, b *leaf) {
	a.rank, b.rank = b.rank, a.rank
	h.order[a.rank], h.order[b.rank] = a, b
}

func (l *leaf) replace(old, with *leaf) {
	if l.zero == old {
		l.zero = with
	} else {
		l.one = with
	}
}
