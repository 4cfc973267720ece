package gameserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Of a Fleet's Servers that go together one looks at their namespace, after the others.
func TestANamespaceIsLookedAtOnceWhenItsServersGo(t *testing.T) {
	var e emptied
	key := func(namespace, name string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	waiting := 0
	for _, namespace := range []string{"games", "others"} {
		for i := range 100 {
			now, after := e.look(key(namespace, fmt.Sprint("lobby-", i)))
			if now {
				t.Errorf("Server %d of %s looks at once", i, namespace)
			}
			if after > 0 {
				waiting++
			}
		}
	}
	if waiting != 2 {
		t.Errorf("%d Servers of two namespaces are to look, want one of each", waiting)
	}
	if now, _ := e.look(key("games", "lobby-0")); !now {
		t.Error("the one that was to look doesn't")
	}
	if now, after := e.look(key("games", "lobby-5")); now || after != emptiedAfter {
		t.Errorf("one that goes after that look looks now: %t, after %s", now, after)
	}
}

// A game goes on where the API server refuses the budget, and its owner is told.
func TestAGameGoesOnWhereItsBudgetIsRefused(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	refuse := func() error {
		return apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}, guardName, errors.New("exceeded quota"))
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return refuse()
		},
	}).Build()
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Client: c, Events: recorder}
	r.Init()
	var done outcome
	if err := r.guard(t.Context(), full(), &done); err != nil || !done.unguarded {
		t.Errorf("the pass ends with %v, unguarded %t; want that it goes on and comes again", err, done.unguarded)
	}
	select {
	case event := <-recorder.Events:
		if !strings.Contains(event, "NotGuarded") || !strings.Contains(event, "exceeded quota") {
			t.Errorf("the event is %q", event)
		}
	default:
		t.Error("nobody is told")
	}
}

// In a namespace that is being deleted nothing is made, and its Servers are to go all the same.
func TestAServerGoesWhereItsNamespaceEnds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	ends := apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}, guardName, errors.New("it is being terminated"))
	ends.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return ends
		},
	}).Build()
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Client: c, Events: recorder}
	r.Init()
	var done outcome
	if err := r.guard(t.Context(), full(), &done); err != nil || done.unguarded || len(recorder.Events) > 0 {
		t.Errorf("the pass ends with %v, unguarded %t, and %d events", err, done.unguarded, len(recorder.Events))
	}
}
