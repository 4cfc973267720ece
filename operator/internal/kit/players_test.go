package kit

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A status that only shows a start waits once, and what is more than that waits for nothing.
func TestAStartWaits(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	var s Start
	for i, c := range []struct {
		at     time.Duration
		starts bool
		want   time.Duration
	}{
		{0, true, StartPause},
		{200 * time.Millisecond, true, StartPause - 200*time.Millisecond},
		{StartPause, true, 0},
		{StartPause + time.Second, true, 0},
		{StartPause + time.Second, false, 0},
		{time.Minute, true, StartPause}, // the next wake
		{time.Minute + time.Millisecond, false, 0},
		{time.Minute + 2*time.Millisecond, true, StartPause},
	} {
		if got := s.Wait(began.Add(c.at), c.starts); got != c.want {
			t.Errorf("step %d: it waits for %s, want %s", i, got, c.want)
		}
	}
}

// writes is a client that counts the statuses that it writes.
type writes struct {
	client.Client
	count int
}

func (w *writes) Status() client.SubResourceWriter { return statusWriter{writes: w} }

type statusWriter struct {
	client.SubResourceWriter
	writes *writes
}

func (w statusWriter) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	w.writes.count++
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, o)
}

// A start that goes on is written when its time is over, and one that has more to tell at once.
func TestTheStatusOfAStartIsWrittenOnce(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
	after := before.DeepCopy()
	after.Status.Phase = corev1.PodRunning
	for name, c := range map[string]struct {
		at     []time.Duration
		starts []bool
		want   int
	}{
		"a start, before its time":            {[]time.Duration{0, StartPause - 1}, []bool{true, true}, 0},
		"a start, after its time":             {[]time.Duration{0, StartPause}, []bool{true, true}, 1},
		"a start with more to tell meanwhile": {[]time.Duration{0, time.Millisecond}, []bool{true, false}, 1},
	} {
		var status PlayersStatus
		w := &writes{}
		for i, at := range c.at {
			written, wait, err := status.Write(t.Context(), w, began.Add(at), before, after, c.starts[i], func() bool { return false })
			if err != nil || written == (wait > 0) {
				t.Errorf("%s, pass %d: written %t, waits for %s: %v", name, i, written, wait, err)
			}
		}
		if w.count != c.want {
			t.Errorf("%s: %d writes, want %d", name, w.count, c.want)
		}
	}
}
