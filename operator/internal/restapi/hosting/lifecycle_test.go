package hosting

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Until when a server is kept awake is said as long as it is, and no longer: neither once that time is
// over nor once it was taken back.
func TestAServerIsKeptAwakeUntilItsTimeIsOver(t *testing.T) {
	h := cluster(t, interceptor.Funcs{})
	now := time.Date(2026, time.November, 27, 18, 0, 0, 0, time.UTC)
	h.Now = func() time.Time { return now }
	keep := func(after time.Duration) {
		t.Helper()
		if err := h.KeepAwake(t.Context(), 5, now.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(want time.Duration, annotation string) {
		t.Helper()
		s, err := h.Get(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		if is := s.KeptAwake; (is != nil) != (want > 0) || is != nil && !is.Equal(now.Add(want)) {
			t.Errorf("at %s it is kept awake until %v, want %s more", now, is, want)
		}
		es := &v1alpha1.ElasticService{}
		if err := h.Client.Get(t.Context(), h.key(5), es); err != nil {
			t.Fatal(err)
		}
		if got := es.Annotations[wellknown.KeepAwakeUntilAnnotation]; got != annotation {
			t.Errorf("the annotation is %q, want %q", got, annotation)
		}
	}
	keep(120 * time.Minute)
	kept(2*time.Hour, "2026-11-27T20:00:00Z")
	now = now.Add(2 * time.Hour)
	kept(0, "2026-11-27T20:00:00Z")
	keep(60 * time.Minute)
	kept(time.Hour, "2026-11-27T21:00:00Z")
	keep(0)
	kept(0, "")
	keep(0)
	kept(0, "")
}
