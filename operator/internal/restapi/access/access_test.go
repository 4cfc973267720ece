package access

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// few lets so many through.
type few struct{ left int }

func (f *few) Allow(netip.Addr) bool {
	f.left--
	return f.left >= 0
}

// reviewer asks an API server for which tokens that begin with good are good, and who may do what is
// in may. It counts the questions.
func reviewer(unknown Limiter, may func(authorizationv1.SubjectAccessReviewSpec) bool) (*Reviewer, map[string]int) {
	client, asked := fake.NewClientset(), map[string]int{}
	client.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked["tokens"]++
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if name, ok := strings.CutPrefix(review.Spec.Token, "good-"); ok {
			name, _, _ = strings.Cut(name, "-")
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name, UID: "uid-" + name}}
		}
		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked["rights"]++
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = may(review.Spec)
		return true, review, nil
	})
	return New(client, unknown), asked
}

// A flood of tokens that nobody knows doesn't hold up who has shown a good one before, though that has
// to be looked at anew.
func TestAFloodOfTokensHoldsNobodyUp(t *testing.T) {
	r, asked := reviewer(&few{left: 10}, nil)
	if _, err := r.User(t.Context(), netip.Addr{}, "good-alice"); err != nil {
		t.Fatal(err)
	}
	busy := 0
	for n := range 100 {
		if _, err := r.User(t.Context(), netip.Addr{}, fmt.Sprintf("junk-%d", n)); errors.Is(err, ErrBusy) {
			busy++
		} else if !errors.Is(err, ErrUnauthenticated) {
			t.Fatalf("a token that is none: %v", err)
		}
	}
	if busy != 91 || asked["tokens"] != 10 {
		t.Errorf("%d of 100 tokens were too many, and the API server was asked %d times", busy, asked["tokens"])
	}
	r.tokens.RemoveAll(func(any) bool { return true }) // its minute is over
	if u, err := r.User(t.Context(), netip.Addr{}, "good-alice"); err != nil || u.Name != "alice" {
		t.Errorf("who was known before is held up: %v", err)
	}
	if _, err := r.User(t.Context(), netip.Addr{}, "good-bob"); !errors.Is(err, ErrBusy) {
		t.Errorf("a new one while there are too many: %v", err)
	}
}

// atOnce makes 50 calls, none of whose questions about a resource is answered before all wait and the caller who came first
// is gone.
func atOnce(t *testing.T, r *Reviewer, resource string, call func(context.Context) error) error {
	t.Helper()
	answer := make(chan struct{})
	r.client.(*fake.Clientset).PrependReactor("create", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		<-answer
		return false, nil, nil
	})
	gone, leave := context.WithCancel(t.Context())
	var calls errgroup.Group
	for i := range 50 {
		ctx := t.Context()
		if i == 0 {
			ctx = gone
		}
		calls.Go(func() error { return call(ctx) })
		synctest.Wait()
	}
	leave()
	close(answer)
	return calls.Wait()
}

// Many calls at once with a token that is new are one question, and outlast the caller who came first.
func TestCallsAtOnceWithANewTokenAreOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, asked := reviewer(&few{left: 1}, nil)
		err := atOnce(t, r, "tokenreviews", func(ctx context.Context) error { _, err := r.User(ctx, netip.Addr{}, "good-alice"); return err })
		if err != nil || asked["tokens"] != 1 {
			t.Errorf("the API server was asked %d times: %v", asked["tokens"], err)
		}
	})
}

// So are many that want the same.
func TestCallsAtOnceThatWantTheSameAreOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, asked := reviewer(&few{left: 1}, func(authorizationv1.SubjectAccessReviewSpec) bool { return true })
		alice, err := r.User(t.Context(), netip.Addr{}, "good-alice")
		if err != nil {
			t.Fatal(err)
		}
		err = atOnce(t, r, "subjectaccessreviews", func(ctx context.Context) error {
			return r.Check(ctx, alice, Action{Verb: "create", Resource: "allocations"})
		})
		if err != nil || asked["rights"] != 1 {
			t.Errorf("the API server was asked %d times: %v", asked["rights"], err)
		}
	})
}

// Nobody gets the answer to another's question, or to another one, that is asked at the same time.
func TestCallsAtOnceThatWantSomethingElseAreAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := reviewer(&few{left: 2}, func(authorizationv1.SubjectAccessReviewSpec) bool { return false })
		user := func(token string) *User {
			u, err := r.User(t.Context(), netip.Addr{}, token)
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		alice, bob := user("good-alice"), user("good-bob")
		action := Action{Namespace: "games", Verb: "get", Resource: "servers", Name: "one"}
		allowed, answer := make(chan error), make(chan struct{})
		go func() {
			_, err, _ := r.checking.Do(asked{alice.token, action}.key(), func() (any, error) { <-answer; return nil, nil })
			allowed <- err
		}()
		synctest.Wait()
		var others sync.WaitGroup
		for _, other := range []struct {
			user *User
			Action
		}{
			{bob, action},
			{alice, Action{Namespace: "other", Verb: "get", Resource: "servers", Name: "one"}},
			{alice, Action{Namespace: "games", Verb: "delete", Resource: "servers", Name: "one"}},
			{alice, Action{Namespace: "games", Verb: "get", Resource: "fleets", Name: "one"}},
			{alice, Action{Namespace: "games", Verb: "get", Resource: "servers", Name: "two"}},
		} {
			others.Go(func() {
				if err := r.Check(t.Context(), other.user, other.Action); !errors.Is(err, ErrForbidden) {
					t.Errorf("%s wants %+v: %v", other.user.Name, other.Action, err)
				}
			})
		}
		synctest.Wait()
		close(answer)
		others.Wait()
		if err := <-allowed; err != nil {
			t.Error(err)
		}
	})
}

// A user is one whichever token is shown, and what a token may do is asked for each of them.
func TestUsersAreToldApartByNameAndAnswersByToken(t *testing.T) {
	r, asked := reviewer(&few{left: 100}, func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return s.User == "alice" && s.ResourceAttributes.Verb == "get" && s.ResourceAttributes.Group == "dormouse.dev"
	})
	user := func(token string) *User {
		t.Helper()
		u, err := r.User(t.Context(), netip.Addr{}, token)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	one, two, bob := user("good-alice-1"), user("good-alice-2"), user("good-bob")
	if one.Key != two.Key || one.Key == bob.Key {
		t.Error("users aren't told apart by who they are")
	}
	get := Action{Namespace: "games", Verb: "get", Resource: "servers", Name: "server-7"}
	for _, c := range []struct {
		who  *User
		do   Action
		want error
	}{
		{one, get, nil},
		{one, get, nil},
		{two, get, nil},
		{bob, get, ErrForbidden},
		{bob, get, ErrForbidden},
		{one, Action{Namespace: "games", Verb: "delete", Resource: "servers", Name: "server-7"}, ErrForbidden},
		{one, Action{Namespace: "games", Verb: "get", Resource: "servers", Name: "server-8"}, nil},
	} {
		if err := r.Check(t.Context(), c.who, c.do); !errors.Is(err, c.want) {
			t.Errorf("%s wants to %+v: %v, want %v", c.who.Name, c.do, err, c.want)
		}
	}
	if asked["rights"] != 5 {
		t.Errorf("the API server was asked %d times, want once for each question", asked["rights"])
	}
}

// What is no token is none without a question.
func TestWhatIsNoTokenIsNotAskedAbout(t *testing.T) {
	r, asked := reviewer(&few{left: 100}, nil)
	for _, token := range []string{"", strings.Repeat("a", maxTokenBytes+1)} {
		if _, err := r.User(t.Context(), netip.Addr{}, token); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("a token of %d bytes: %v", len(token), err)
		}
	}
	if asked["tokens"] != 0 {
		t.Errorf("the API server was asked %d times", asked["tokens"])
	}
}
