// Package conn is what the data plane needs of sockets beyond the net package:
// reading with a borrowed buffer that is held only while there are bytes, and
// UDP with the address that a client sent to.
//
// It knows sockets and nothing of services.
package conn

import "sync"

// BufferBytes is the size of a pooled buffer for TCP.
const BufferBytes = 32 << 10

// MaxDatagram is more than the largest UDP payload.
const MaxDatagram = 64 << 10

// Pool lends buffers of one size.
type Pool struct{ pool sync.Pool }

// NewPool makes a pool of buffers of size bytes.
func NewPool(size int) *Pool {
	return &Pool{pool: sync.Pool{New: func() any {
		b := make([]byte, size)
		return &b
	}}}
}

// Get borrows a buffer.
func (p *Pool) Get() *[]byte { return p.pool.Get().(*[]byte) }

// Put gives it back.
func (p *Pool) Put(b *[]byte) { p.pool.Put(b) }

// Streams and Datagrams are the pools that all connections and sockets share.
var (
	Streams   = NewPool(BufferBytes)
	Datagrams = NewPool(MaxDatagram)
)
