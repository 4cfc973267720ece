package audit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheAuditLogIsReadOnceAndEachRequestCountedOnce(t *testing.T) {
	a := Log{File: filepath.Join(t.TempDir(), "audit.log")}
	add := func(text string) {
		t.Helper()
		f, err := os.OpenFile(a.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	next := func() Requests {
		t.Helper()
		r, err := a.Next()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const of = `"userAgent":"operator/v1 (linux)"`
	add(`{"stage":"ResponseComplete","verb":"patch",` + of + `,"objectRef":{"resource":"servers","subresource":"status"},"responseStatus":{"code":409}}
{"stage":"ResponseComplete","verb":"patch",` + of + `,"objectRef":{"resource":"servers","subresource":"status"},"responseStatus":{"code":200}}
{"stage":"ResponseStarted","verb":"watch",` + of + `,"objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"watch",` + of + `,"objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"update",` + of + `,"objectRef":{"resource":"leases"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"get",` + of + `,"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"cre`)
	first := next()
	want := Requests{"operator": {
		"patch servers/status": {All: 2, Conflicts: 1}, "watch pods": {All: 1}, "update leases": {All: 1},
	}}
	if d := cmp.Diff(want, first); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
	if writes, reads, conflicts := first.Sum("operator"); writes != 2 || reads != 1 || conflicts != 1 {
		t.Errorf("%d writes, %d reads and %d conflicts, want 2, 1 and 1: leases don't count", writes, reads, conflicts)
	}
	add(`ate",` + of + `,"objectRef":{"resource":"pods"},"responseStatus":{"code":403}}` + "\n")
	if d := cmp.Diff(Requests{"operator": {"create pods": {All: 1, Failed: 1}}}, next()); d != "" {
		t.Errorf("requests since (-want +got):\n%s", d)
	}
	add(`{"stage":"ResponseStarted","verb":"watch",` + of + `,"objectRef":{"resource":"services"},"responseStatus":{"code":200}}` + "\n")
	next()
	if d := cmp.Diff(map[string]int{"services": 1}, a.Watches("operator")); d != "" {
		t.Errorf("open watches (-want +got):\n%s", d)
	}
}
