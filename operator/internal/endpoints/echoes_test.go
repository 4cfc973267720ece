package endpoints

import (
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func versionOf(version string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: version}}
}

func TestAWriteIsHeardOfOnceAndOthersWritesAreNot(t *testing.T) {
	t.Parallel()
	var e Echoes
	now := time.Now()
	if e.Heard(now, versionOf("1")) {
		t.Error("what nobody wrote counts as written")
	}
	e.Expect(now, versionOf("2"))
	if !e.Heard(now, versionOf("2")) {
		t.Error("what was written counts as another's change")
	}
	if e.Heard(now, versionOf("2")) {
		t.Error("a write is heard of twice")
	}
	e.Expect(now, versionOf("3"))
	if e.Heard(now, versionOf("4")) || e.Heard(now, versionOf("3")) {
		t.Error("a change after the write counts as the write, or leaves it remembered")
	}
}

// A pass by what was before the write would leave what it has undone, and nobody would hear of that.
func TestAWriteIsAwaitedUntilTheCacheShowsIt(t *testing.T) {
	t.Parallel()
	var e Echoes
	now := time.Now()
	if e.Awaits(now, versionOf("1")) {
		t.Error("a write is awaited that nobody made")
	}
	e.Expect(now, versionOf("2"))
	if !e.Awaits(now.Add(echoTime-1), versionOf("1")) {
		t.Error("a cache that doesn't show the write is believed")
	}
	if !e.Heard(now, versionOf("2")) || !e.Awaits(now, versionOf("1")) {
		t.Error("what was read before the write was heard of is believed")
	}
	if e.Awaits(now, versionOf("2")) || len(e.written) > 0 {
		t.Error("a write that the cache shows is awaited, or remembered")
	}
	// The watch was faster than the answer.
	e.Expect(now, versionOf("3"))
	if e.Awaits(now, versionOf("3")) || len(e.written) > 0 {
		t.Error("a write that the cache shows is awaited, or remembered")
	}
	// The watch shows what was before, and then the write.
	e.Expect(now, versionOf("10"))
	if e.Heard(now, versionOf("9")) || !e.Awaits(now, versionOf("9")) || !e.Heard(now, versionOf("10")) {
		t.Error("an event from before the write has it forgotten")
	}
	// A cluster that is restored has earlier versions again.
	if e.Awaits(now.Add(echoTime), versionOf("9")) {
		t.Error("a write is awaited for ever")
	}
	// It is heard of at last.
	e.Expect(now, versionOf("10"))
	late := now.Add(echoTime - 1)
	if !e.Heard(late, versionOf("10")) || !e.Awaits(late.Add(time.Second), versionOf("9")) {
		t.Error("what was read before the write was heard of is believed as that took long")
	}
	e.Forget(versionOf("10"))
	// The API server has changed nothing.
	if e.Expect(now, versionOf("3")); e.Awaits(now, versionOf("3")) || len(e.written) > 0 {
		t.Error("a write that changed nothing is awaited")
	}
	// It is deleted before there is another pass.
	e.Expect(now, versionOf("3"))
	if e.Forget(versionOf("3")); len(e.written) > 0 {
		t.Error("a slice that is gone is remembered")
	}
	// The watch is broken.
	e.Expect(now, versionOf("4"))
	if e.Awaits(now.Add(echoTime), versionOf("3")) || e.Heard(now, versionOf("4")) {
		t.Error("a write is awaited for ever, or isn't heard of as another change once it isn't awaited")
	}
}
