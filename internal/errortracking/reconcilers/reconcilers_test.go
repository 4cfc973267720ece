package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/test/sentrysink"
)

var lobby = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "games", Name: "lobby"}}

func TestAReconcilersErrorIsReportedAndPassedOn(t *testing.T) {
	sink := sentrysink.Start()
	t.Cleanup(sink.Close)
	r, err := errortracking.New(errortracking.Options{Program: "operator", DSN: sink.DSN()})
	if err != nil {
		t.Fatal(err)
	}
	failure, result := errors.New("no"), reconcile.Result{RequeueAfter: time.Second}
	inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return result, failure })
	if got, err := Wrap(r, "elasticservice", "ElasticService", inner).Reconcile(t.Context(), lobby); !errors.Is(err, failure) || got != result {
		t.Errorf("the controller got %v, %v; want the reconciler's own answer", got, err)
	}
	r.Close()
	events, problems, _ := sink.Events()
	if len(events) != 1 || len(problems) > 0 {
		t.Fatalf("%d events arrived, want 1; problems: %v", len(events), problems)
	}
	want := map[string]string{"program": "operator", "controller": "elasticservice", "kind": "ElasticService", "namespace": "games", "name": "lobby"}
	if !maps.Equal(events[0].Tags, want) {
		t.Errorf("the tags are %v, want %v", events[0].Tags, want)
	}
}

func TestAReconcilersPanicArrivesOnceWithItsStack(t *testing.T) {
	sink := sentrysink.Start()
	t.Cleanup(sink.Close)
	r, err := errortracking.New(errortracking.Options{Program: "operator", DSN: sink.DSN()})
	if err != nil {
		t.Fatal(err)
	}
	before := utilruntime.PanicHandlers
	t.Cleanup(func() { utilruntime.PanicHandlers = before })
	r.WatchCrashes()
	explode := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { panic("boom") })
	func() {
		// As controller-runtime does.
		defer func() {
			value := recover()
			if fmt.Sprint(value) != "boom" {
				t.Errorf("the controller recovered %v, want boom", value)
			}
			for _, handler := range utilruntime.PanicHandlers[len(before):] {
				handler(t.Context(), value)
			}
		}()
		_, _ = Wrap(r, "elasticservice", "ElasticService", explode).Reconcile(t.Context(), lobby)
	}()
	r.Close()
	events, problems, _ := sink.Events()
	if len(events) != 1 || len(problems) > 0 {
		t.Fatalf("%d events arrived, want 1; problems: %v", len(events), problems)
	}
	e := events[0]
	if e.Level != "fatal" || e.Tags["name"] != "lobby" || e.Exception[0].Value != "boom" {
		t.Errorf("level %q, tags %v, exception %v", e.Level, e.Tags, e.Exception)
	}
	frames := e.Exception[0].Stacktrace.Frames
	if len(frames) == 0 {
		t.Fatal("there is no stack")
	}
	last := frames[len(frames)-1]
	if function, _ := last["function"].(string); !strings.HasPrefix(function, "TestAReconcilersPanic") {
		t.Errorf("the stack ends in %v, want the function that panicked", last)
	}
	for _, frame := range frames {
		for _, field := range slices.Sorted(maps.Keys(frame)) {
			if !slices.Contains([]string{"filename", "function", "in_app", "lineno", "module"}, field) {
				t.Errorf("a frame has a field %q: %v", field, frame)
			}
		}
	}
}

func TestOnlyWhatIsNewsIsReported(t *testing.T) {
	resource := schema.GroupResource{Resource: "services"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"none":             {nil, false},
		"conflict":         {fmt.Errorf("write: %w", apierrors.NewConflict(resource, "lobby", errors.New("changed"))), false},
		"a user's mistake": {fmt.Errorf("read: %w", reconcile.TerminalError(errors.New("no such target"))), false},
		"told to stop":     {fmt.Errorf("read: %w", context.Canceled), false},
		"too slow":         {fmt.Errorf("read: %w", context.DeadlineExceeded), true},
		"forbidden":        {fmt.Errorf("write: %w", apierrors.NewForbidden(resource, "lobby", errors.New("no"))), true},
	} {
		if got := isNews(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
