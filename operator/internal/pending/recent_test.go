package pending

import (
	"fmt"
	"testing"
	"time"
)

func TestRecentOnesAreForgottenAfterTheirTime(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	r := NewRecent(time.Minute)
	for i := range 10 {
		r.Add(fmt.Sprint(i), noon.Add(time.Duration(i)*time.Second))
	}
	r.Add("late", noon.Add(2*time.Minute))
	if len(r.at) != 1 || !r.Has("late", noon.Add(2*time.Minute)) || r.Has("9", noon.Add(2*time.Minute)) {
		t.Errorf("it remembers %v, want the late one alone", r.at)
	}
}
