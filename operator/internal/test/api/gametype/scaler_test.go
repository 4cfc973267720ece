package gametype_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/operator/internal/gametype"
	"dormouse.dev/dormouse/operator/internal/gametype/firstpods"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/test/api/fixture"
)

// scaler wakes as the operator does.
func (w *world) scaler() *gametype.Scaler {
	return &gametype.Scaler{Client: w.Manager.GetClient(), Scaler: target.NewScaler(w.Manager.GetClient(), w.Manager.GetAPIReader())}
}

// raise wakes the GameType, and says what that found and left.
func (w *world) raise(kind, name string, replicas int32) (before, after int32) {
	w.t.Helper()
	ref := target.Ref{Namespace: w.Namespace, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: name}}
	raised, err := w.scaler().RaiseTo(w.t.Context(), ref, target.Replicas{AtLeast: 1, FromZero: replicas})
	if err != nil {
		w.t.Errorf("wake %s: %v", ref, err)
	}
	return raised.Before, raised.After
}

// alive are the Servers that aren't being deleted.
func (w *world) alive() []v1alpha1.Server {
	w.t.Helper()
	var list []v1alpha1.Server
	for _, s := range w.servers() {
		if s.DeletionTimestamp.IsZero() {
			list = append(list, s)
		}
	}
	return list
}

func asleep(gt *v1alpha1.GameType) { gt.Spec.Replicas = new(int32(0)) }

// Nothing but the wake has written when the Servers are there, and the controllers
// find nothing to do after it.
func TestAWakeMakesTheServersOfAGameTypeInOneGo(t *testing.T) {
	w := newWorld(t, true)
	w.create(asleep)
	w.settled()
	if before, after := w.raise("GameType", game, 2); before != 0 || after != 2 {
		t.Errorf("the wake found %d replicas and left %d, want 0 and 2", before, after)
	}
	made := w.alive()
	f := w.of("game:1")
	if w.gameType().Spec.Scale.Replicas != 2 || *f.Spec.Replicas != 2 || len(made) != 2 {
		t.Fatalf("the GameType is to have %d, its Fleet %d, and there are %d Servers: want 2 each", w.gameType().Spec.Scale.Replicas, *f.Spec.Replicas, len(made))
	}
	for i := range made {
		if s := &made[i]; !metav1.IsControlledBy(s, f) || s.Labels[wellknown.GameTypeLabel] != game || len(s.Finalizers) == 0 {
			t.Errorf("Server %s is made otherwise than by its Fleet: %+v", s.Name, s.ObjectMeta)
		}
	}
	w.settled()
	for range 3 {
		w.reconcile()
	}
	if again := w.alive(); len(again) != 2 || again[0].UID != made[0].UID && again[0].UID != made[1].UID {
		t.Errorf("after the controllers had their turn there are %d Servers, want the same 2", len(again))
	}
	// One more than a wake makes itself, and after another sleep none of the old names.
	w.change(func(gt *v1alpha1.GameType) { gt.Spec.Scale.Replicas = 0 })
	w.eventually("no Servers", func() error { return fixture.WantEqual("Servers", len(w.alive()), 0) })
	w.guard()
	w.settled()
	w.raise("GameType", game, 6)
	w.eventually("six Servers", func() error { return fixture.WantEqual("Servers", len(w.alive()), 6) })
	for _, s := range w.alive() {
		if s.Name == made[0].Name || s.Name == made[1].Name {
			t.Errorf("Server %s has the name of an earlier one", s.Name)
		}
	}
}

// A wake brings what the target's autoscaler would raise it to at once, and no more than it allows.
func TestAWakeIsWithinTheAutoscalersBounds(t *testing.T) {
	w := newWorld(t, true)
	w.create(asleep)
	gas := &v1alpha1.GameAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: game},
		Spec: v1alpha1.GameAutoscalerSpec{
			TargetRef: v1alpha1.AutoscalerTarget{Name: game}, MinReplicas: new(int32(2)), MaxReplicas: 3,
			Policies: []v1alpha1.AutoscalerPolicy{{Name: "load", ActivePlayers: &v1alpha1.ActivePlayersPolicy{}}},
		},
	}
	if err := w.Admin.Create(t.Context(), gas); err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[int32]int32{1: 2, 9: 3} {
		w.settled()
		if _, after := w.raise("GameType", game, asked); after != want || w.gameType().Spec.Scale.Replicas != want {
			t.Errorf("a wake that asks for %d left %d replicas, want %d", asked, after, want)
		}
		w.settled()
		w.change(func(gt *v1alpha1.GameType) { gt.Spec.Scale.Replicas = 0 })
		w.eventually("no Servers", func() error { return fixture.WantEqual("Servers", len(w.alive()), 0) })
		w.guard()
	}
}

// Two resolvers ask two operators, while the controllers look on.
func TestManyWakesAtOnceMakeEachServerOnce(t *testing.T) {
	for _, kind := range []string{"GameType", "Fleet"} {
		w := newWorld(t, true)
		w.create(asleep)
		name := game
		if kind == "Fleet" {
			plain := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "plain"}}
			plain.Spec = *w.of("game:1").Spec.DeepCopy()
			if err := w.Admin.Create(t.Context(), plain); err != nil {
				t.Fatal(err)
			}
			name = plain.Name
		}
		w.settled()
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() { w.raise(kind, name, 3) })
		}
		ended := make(chan struct{})
		go func() { group.Wait(); close(ended) }()
		for over := false; !over; {
			select {
			case <-ended:
				over = true
			default:
			}
			w.reconcile()
		}
		w.settled()
		if n := len(w.servers()); n != 3 {
			t.Errorf("%s: four wakes at once made %d Servers, want 3", kind, n)
		}
	}
}

// The Fleet's controller was first, and the wake's Servers are those that it made.
func TestAWakeAfterTheControllerMakesNothing(t *testing.T) {
	w := newWorld(t, true)
	w.create(asleep)
	before := w.of("game:1")
	w.change(func(gt *v1alpha1.GameType) { gt.Spec.Replicas = new(int32(3)) })
	w.eventually("three Servers", func() error { return fixture.WantEqual("Servers", len(w.alive()), 3) })
	fleet.CreateFirst(t.Context(), w.Manager.GetClient(), fleet.First(before, 3))
	if n := len(w.servers()); n != 3 {
		t.Errorf("the wake made %d Servers beside those of the controller, want none", n-3)
	}
}

// While the API server makes the Pods for which players wait, a wake writes nothing else.
func TestAWakesOtherWritesComeAfterItsPods(t *testing.T) {
	w := newWorld(t, true)
	w.create(asleep)
	scaler := w.scaler()
	scaler.Pods = &firstpods.Pods{Longest: promptly}
	if err := scaler.Pods.Watch(t.Context(), w.Manager.GetCache()); err != nil {
		t.Fatal(err)
	}
	spy := &podsFirst{Client: w.Manager.GetClient(), w: w}
	scaler.Client = spy
	ref := target.Ref{Namespace: w.Namespace, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: game}}
	if _, err := scaler.RaiseTo(t.Context(), ref, target.Replicas{AtLeast: 1, FromZero: 2}); err != nil {
		t.Error(err)
	}
	spy.making.Wait()
	if !slices.Equal(spy.beside, []int{2}) {
		t.Errorf("the Fleet is written beside %v Pods, want once, beside 2", spy.beside)
	}
}

// podsFirst makes the Pod of each Server that is created, a moment after that, as its controller does, and notes
// how many Pods there are at each patch.
type podsFirst struct {
	client.Client
	w      *world
	making sync.WaitGroup
	beside []int
}

func (s *podsFirst) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := s.Client.Create(ctx, o, opts...); err != nil {
		return err
	}
	s.making.Go(func() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
		pod.Spec.Containers = []corev1.Container{{Name: "game", Image: "game:1"}}
		if err := s.Client.Create(ctx, pod); err != nil {
			s.w.t.Error(err)
		}
	})
	return nil
}

func (s *podsFirst) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	var pods corev1.PodList
	if err := s.w.Admin.List(ctx, &pods, client.InNamespace(s.w.Namespace)); err != nil {
		return err
	}
	s.beside = append(s.beside, len(pods.Items))
	return s.Client.Patch(ctx, o, p, opts...)
}

// Where scaling is refused, held players ask again and again: no Servers come and go
// with that.
func TestWakesOfWhatCantBeScaledMakeNoServersOverAndOver(t *testing.T) {
	w := newWorld(t, true)
	w.create(asleep)
	refusing, err := client.NewWithWatch(w.Manager.GetConfig(), client.Options{Scheme: w.Manager.GetScheme()})
	if err != nil {
		t.Fatal(err)
	}
	refusing = interceptor.NewClient(refusing, interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "gametypes/scale"}, game, errors.New("a policy"))
		},
	})
	scaler := &gametype.Scaler{Client: w.Manager.GetClient(), Scaler: target.NewScaler(refusing, refusing)}
	ref := target.Ref{Namespace: w.Namespace, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: game}}
	wake := func() {
		t.Helper()
		if _, err := scaler.RaiseTo(t.Context(), ref, target.Replicas{AtLeast: 1, FromZero: 1}); !errors.Is(err, target.ErrForbidden) {
			t.Errorf("a wake that is refused ends with %v, want ErrForbidden", err)
		}
	}
	wake()
	w.eventually("the cache has what the wake made", func() error {
		if !w.CacheIsCurrent(kinds...) {
			return errors.New("it lags")
		}
		return nil
	})
	w.reconcile()
	w.Clock.Pass(time.Minute) // the controllers wait no longer for a GameType that isn't coming
	w.eventually("the wake is undone", func() error {
		w.guard()
		return fixture.WantEqual("replicas and Servers", [2]int{int(*w.of("game:1").Spec.Replicas), len(w.servers())}, [2]int{0, 0})
	})
	wake()
	if n := len(w.servers()); n != 0 {
		t.Errorf("another wake made %d Servers, want none", n)
	}
}

// A wake that is too late for what it knew makes nothing of its own.
func TestAWakeLeavesWhatItCantDoToTheControllers(t *testing.T) {
	w := newWorld(t, true)
	w.create(func(gt *v1alpha1.GameType) { gt.Spec.Replicas = new(int32(1)) })
	w.eventually("one Server", func() error { return fixture.WantEqual("Servers", len(w.alive()), 1) })
	if before, after := w.raise("GameType", game, 3); before != 1 || after != 1 {
		t.Errorf("a wake of what is awake found %d and left %d replicas, want 1 and 1", before, after)
	}
	// Somebody still plays on the old Server, which may be taken back.
	w.plays(2)
	w.change(asleep)
	w.eventually("a Server that drains", func() error {
		return fixture.WantEqual("draining", ptr.Deref(w.of("game:1").Spec.Replicas, -1), 0)
	})
	w.settled()
	w.raise("GameType", game, 1)
	if n := len(w.servers()); n != 1 {
		t.Errorf("beside the Server that drains there are %d more, want the Fleet to take that back", n-1)
	}
	w.eventually("the Server back", func() error {
		s := w.servers()
		return fixture.WantEqual("drained and Servers", [2]any{s[0].Spec.Drain, len(s)}, [2]any{false, 1})
	})
}

// Whoever would join what is being deleted is told so, and not held until its time is over.
func TestAWakeOfWhatIsBeingDeletedFindsNothing(t *testing.T) {
	w := newWorld(t, true)
	w.create(asleep)
	w.settled()
	for _, o := range []client.Object{
		&v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "ending"}, Spec: *w.gameType().Spec.DeepCopy()},
		&v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "ending"}, Spec: *w.of("game:1").Spec.DeepCopy()},
	} {
		kind := "GameType"
		if _, is := o.(*v1alpha1.Fleet); is {
			kind = "Fleet"
		}
		o.SetFinalizers([]string{"example.com/keep"})
		if err := w.Admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = w.Admin.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		})
		if err := w.Admin.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		ref := target.Ref{Namespace: w.Namespace, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: "ending"}}
		w.eventually("nothing is found", func() error {
			if _, err := w.scaler().RaiseTo(t.Context(), ref, target.Replicas{AtLeast: 1, FromZero: 1}); !errors.Is(err, target.ErrNotFound) || !strings.Contains(err.Error(), "is being deleted") {
				return fmt.Errorf("a wake of %s ends with %w", ref, err)
			}
			return nil
		})
	}
}
