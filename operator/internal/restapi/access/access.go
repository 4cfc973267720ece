// Package access decides who may call the REST API. Kubernetes decides: a bearer token is shown to
// the API server in a TokenReview, and each call is asked about in a SubjectAccessReview, so that
// the roles that hold for kubectl hold here. Answers are remembered for some seconds.
package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Errors of a call that isn't allowed.
var (
	// ErrUnauthenticated means that the token is missing, or isn't one.
	ErrUnauthenticated = errors.New("no valid token")
	// ErrForbidden means that the token's owner may not do that.
	ErrForbidden = errors.New("forbidden")
	// ErrBusy means that too many unknown tokens came to look at another one now.
	ErrBusy = errors.New("too many unknown tokens")
	// ErrUnasked means that the API server couldn't be asked who somebody is, or what somebody may do.
	ErrUnasked = errors.New("the API server can't be asked")
)

// For how long answers are used. A token or a role that was withdrawn works for that long.
const (
	tokenFor    = time.Minute
	noTokenFor  = 10 * time.Second
	acceptedFor = time.Hour
	allowedFor  = 10 * time.Second
	forbiddenOf = 2 * time.Second
	// maxTokens and maxAnswers bound what is remembered.
	maxTokens  = 4096
	maxAnswers = 32768
	// maxTokenBytes bounds a token.
	maxTokenBytes = 16 << 10
	// askTime bounds a question.
	askTime = 10 * time.Second
)

// User is whose token it is.
type User struct {
	// Name is the name that Kubernetes has for the user.
	Name string
	// Key tells users apart, whichever of their tokens they show.
	Key [sha256.Size]byte

	token [sha256.Size]byte

	review authenticationv1.UserInfo
}

// Action is what a user wants to do, in the words of Kubernetes' roles. The group is that of
// Dormouse's own kinds.
type Action struct {
	Namespace, Verb, Resource, Name string
}

// Limiter bounds how often the API server is asked about tokens that nobody has shown before, by the
// address that they come from.
type Limiter interface{ Allow(from netip.Addr) bool }

// Reviewer asks the API server.
type Reviewer struct {
	client  kubernetes.Interface
	unknown Limiter
	// accepted has the tokens that were good lately: a flood of others doesn't hold them up.
	accepted *utilcache.LRUExpireCache
	tokens   *utilcache.LRUExpireCache
	answers  *utilcache.LRUExpireCache
	// asking are the tokens, and checking what they may do, that the API server is asked about now: many calls at
	// once with the same are one question.
	asking, checking singleflight.Group
}

// New makes a Reviewer.
func New(client kubernetes.Interface, unknown Limiter) *Reviewer {
	return &Reviewer{
		client: client, unknown: unknown,
		accepted: utilcache.NewLRUExpireCache(maxTokens), tokens: utilcache.NewLRUExpireCache(maxTokens), answers: utilcache.NewLRUExpireCache(maxAnswers),
	}
}

// User is whose token it is, which comes from an address. It returns ErrUnauthenticated for one that
// the API server doesn't accept, ErrBusy, and ErrUnasked where it couldn't be asked.
func (r *Reviewer) User(ctx context.Context, from netip.Addr, token string) (*User, error) {
	if token == "" || len(token) > maxTokenBytes {
		return nil, ErrUnauthenticated
	}
	key := sha256.Sum256([]byte(token))
	if v, ok := r.tokens.Get(key); ok {
		if u := v.(*User); u != nil {
			return u, nil
		}
		return nil, ErrUnauthenticated
	}
	// Whoever asks may go away before others who wait for the answer.
	u, err, _ := r.asking.Do(string(key[:]), func() (any, error) { return r.ask(context.WithoutCancel(ctx), from, token, key) })
	if err != nil {
		return nil, err //nolint:wrapcheck // ask says what failed
	}
	return u.(*User), nil
}

// ask asks the API server whose token it is.
func (r *Reviewer) ask(ctx context.Context, from netip.Addr, token string, key [sha256.Size]byte) (*User, error) {
	if _, ok := r.accepted.Get(key); !ok && !r.unknown.Allow(from) {
		return nil, ErrBusy
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	review, err := r.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("have a token reviewed: %w: %w", ErrUnasked, err)
	}
	if !review.Status.Authenticated {
		r.tokens.Add(key, (*User)(nil), noTokenFor)
		return nil, ErrUnauthenticated
	}
	u := &User{Name: review.Status.User.Username, token: key, review: review.Status.User}
	u.Key = sha256.Sum256([]byte(u.review.UID + "\n" + u.Name))
	r.tokens.Add(key, u, tokenFor)
	r.accepted.Add(key, true, acceptedFor)
	return u, nil
}

// asked is a question of a user's.
type asked struct {
	token  [sha256.Size]byte
	action Action
}

// key tells questions apart, by all that the action has.
func (q asked) key() string { return fmt.Sprintf("%x %q", q.token, q.action) }

// Check returns nil if a user may do something, ErrForbidden with the reason if not, and ErrUnasked where the API server
// couldn't be asked.
func (r *Reviewer) Check(ctx context.Context, u *User, a Action) error {
	question := asked{u.token, a}
	if v, ok := r.answers.Get(question); ok {
		return v.(answer).err
	}
	// Whoever asks may go away before others who wait for the answer.
	_, err, _ := r.checking.Do(question.key(), func() (any, error) { return nil, r.check(context.WithoutCancel(ctx), u, question) })
	return err //nolint:wrapcheck // check says what failed
}

// check asks the API server whether a user may do something.
func (r *Reviewer) check(ctx context.Context, u *User, question asked) error {
	a := question.action
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range u.review.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	review, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.review.Username, Groups: u.review.Groups, UID: u.review.UID, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: a.Namespace, Verb: a.Verb, Group: v1alpha1.GroupVersion.Group, Resource: a.Resource, Name: a.Name,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("have access reviewed: %w: %w", ErrUnasked, err)
	}
	if review.Status.Allowed {
		r.answers.Add(question, answer{}, allowedFor)
		return nil
	}
	err = fmt.Errorf("%w: %s may not %s %s.%s%s in namespace %s, says Kubernetes", ErrForbidden, u.Name, a.Verb, a.Resource, v1alpha1.GroupVersion.Group, quoted(a.Name), a.Namespace)
	r.answers.Add(question, answer{err}, forbiddenOf)
	return err
}

// answer is what the API server said; nil is yes.
type answer struct{ err error }

func quoted(name string) string {
	if name == "" {
		return ""
	}
	return " " + name
}
