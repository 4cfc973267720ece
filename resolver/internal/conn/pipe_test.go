package conn

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// spliced are a source's far end, a splicer, and its destination's far end.
func spliced(t *testing.T) (from io.WriteCloser, s *Splicer, to io.Reader) {
	a, b := pair(t)
	c, d := pair(t)
	s, err := NewSplicer(c, b)
	if err != nil {
		t.Fatal(err)
	}
	return a, s, d
}

func TestSplicerMovesAllBytesAndHoldsNoPipeMeanwhile(t *testing.T) {
	from, s, to := spliced(t)
	sent := make([]byte, 5<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 8)
	}
	go func() {
		_, _ = from.Write(sent)
		_ = from.Close()
	}()
	moved := make(chan error, 1)
	go func() {
		total := 0
		for {
			n, err := s.Next()
			total += n
			if s.pipe != nil {
				err = errors.New("a pipe is held")
			}
			if errors.Is(err, io.EOF) && total == len(sent) {
				err = nil
			} else if err == nil {
				continue
			}
			moved <- err
			return
		}
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(to, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Error("other bytes came than were sent")
	}
	if err := <-moved; err != nil {
		t.Error(err)
	}
}

func TestSplicerTellsWhenPipesAreShort(t *testing.T) {
	from, s, to := spliced(t)
	if _, err := from.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	var all []*pipe
	for p := pipes.get(); p != nil; p = pipes.get() {
		all = append(all, p)
	}
	if len(all) != maxPipes {
		t.Errorf("%d pipes were lent, want %d", len(all), maxPipes)
	}
	n, err := s.Next()
	for _, p := range all {
		pipes.put(p)
	}
	if n != 0 || !errors.Is(err, ErrNoPipe) {
		t.Errorf("without a pipe: %d, %v", n, err)
	}
	if n, err := s.Next(); n != 3 || err != nil {
		t.Errorf("with one: %d, %v", n, err)
	}
	got := make([]byte, 3)
	if _, err := io.ReadFull(to, got); err != nil || string(got) != "abc" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestPipePoolKeepsNoOthersBytes(t *testing.T) {
	p := pipes.get()
	if _, err := unix.Write(p.write, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	p.held = 6
	made := pipes.made.Load()
	pipes.put(p)
	if now := pipes.made.Load(); now != made-1 {
		t.Errorf("%d pipes are left of %d after one came back with bytes", now, made)
	}
}
