package allocate

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

const (
	// MaxSession bounds a session's id, in bytes.
	MaxSession = 256
	// MaxWait bounds how long a call may wait.
	MaxWait = time.Hour
)

// Errors of calls, besides *Refused and those of the API server. Each is wrapped in a sentence.
var (
	// ErrInvalid means that the request can't be: the sentence says what to change.
	ErrInvalid = errors.New("invalid request")
	// ErrConflict means that the session has a Server, or waits for one, by another request.
	ErrConflict = errors.New("the session exists with another request")
	// ErrUnknownSession means that the session has no Server.
	ErrUnknownSession = errors.New("unknown session")
)

// Refused is the error of a call for which there was no Server. Nothing is left of it.
type Refused struct {
	// Reason is the condition's, see package reasons, or one of the constants below.
	Reason string
	// Message is a sentence.
	Message string
	// RetryAfter is after how long to try again.
	RetryAfter time.Duration
}

// Reasons of a refusal that no Allocation has.
const (
	// NoAnswer means that the operator's leader hasn't answered.
	NoAnswer = "NoAnswer"
	// Released means that the Allocation was deleted while the call waited.
	Released = "Released"
)

// Error implements error.
func (r *Refused) Error() string { return r.Message }

// Request is what a caller asks for.
type Request struct {
	// Session is the caller's id for what it asks for: the same again is answered with the same
	// Server. Empty: the call makes one.
	Session string
	// Kind is GameType or Fleet, by default GameType, and Target its name; empty: all Servers of the
	// namespace.
	Kind, Target string
	// Labels are those that the Server must have.
	Labels map[string]string
	// Players is how many places are needed; 0: the whole Server.
	Players int32
	// Strategy is Packed, the default, or Distributed.
	Strategy string
	// NearKey and NearValue are a label of the nodes whose Servers come first; empty: none is.
	NearKey, NearValue string
	// Wait is how long the caller waits; 0: it doesn't.
	Wait time.Duration
	// TTL is how long the caller has the Server at most; 0: until it is released or gone.
	TTL time.Duration
}

// Result is what a caller gets.
type Result struct {
	// Session is the caller's, or the one that was made for it: with that it is released.
	Session string
	// Allocation and Server are the objects' names.
	Allocation, Server string
	// Address, Addresses, Ports and Node are where the Server is.
	Address   string
	Addresses []corev1.NodeAddress
	Ports     []v1alpha1.ServerPortStatus
	Node      string
	// AllocatedAt is when the caller got it, and ExpiresAt until when it has it; zero: no end.
	AllocatedAt, ExpiresAt time.Time
	// Existed is set where the session had it before.
	Existed bool
}

// spec is the request as an Allocation.
func (r *Request) spec(wait time.Duration) v1alpha1.AllocationSpec {
	s := v1alpha1.AllocationSpec{
		Players:    r.Players,
		Preference: v1alpha1.AllocationPreference{Strategy: v1alpha1.AllocationStrategy(r.Strategy)},
		Wait:       whole(wait), TTL: whole(r.TTL),
	}
	if s.Preference.Strategy == "" {
		s.Preference.Strategy = v1alpha1.AllocationPacked
	}
	if r.Target != "" {
		s.TargetRef = &v1alpha1.AllocationTarget{Kind: v1alpha1.AllocationTargetKind(r.Kind), Name: r.Target}
		if r.Kind == "" {
			s.TargetRef.Kind = v1alpha1.AllocationTargetGameType
		}
	}
	if len(r.Labels) > 0 {
		s.Selector = &v1alpha1.AllocationSelector{MatchLabels: map[string]v1alpha1.LabelValue{}}
		for key, value := range r.Labels {
			s.Selector.MatchLabels[key] = v1alpha1.LabelValue(value)
		}
	}
	if r.NearKey != "" {
		s.Preference.Near = &v1alpha1.AllocationNear{Key: r.NearKey, Value: r.NearValue}
	}
	return s
}

// whole is a duration as the API takes it: of seconds, or of milliseconds below one, and never less.
func whole(d time.Duration) *metav1.Duration {
	unit := time.Second
	if d < unit {
		unit = time.Millisecond
	}
	if rest := d % unit; rest > 0 {
		d += unit - rest
	}
	return &metav1.Duration{Duration: d}
}

// check finds what the API server wouldn't say, or would say in words of its own.
func (r *Request) check() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case len(r.Session) > MaxSession:
		return invalid("the session has %d bytes, and may have %d", len(r.Session), MaxSession)
	case r.Target == "" && r.Kind != "":
		return invalid("a kind without a target says nothing: name the target")
	case r.Target == "" && len(r.Labels) == 0:
		return invalid("name a target, or labels")
	case r.Players < 0:
		return invalid("players is %d, and may not be below 0", r.Players)
	case r.Wait < 0 || r.Wait > MaxWait:
		return invalid("wait is %s, and must be from 0s to %s", r.Wait, MaxWait)
	case r.TTL < 0 || r.TTL > 0 && r.TTL < time.Second:
		return invalid("ttl is %s, and must be 0s, or 1s at least", r.TTL)
	case r.NearKey == "" && r.NearValue != "":
		return invalid("near has a value and no label's name")
	}
	return nil
}

// result is what an Allocation says.
func result(session string, o *v1alpha1.Allocation, existed bool) Result {
	s := &o.Status
	r := Result{
		Session: session, Allocation: o.Name, Server: s.ServerName, Existed: existed,
		Address: s.Address, Addresses: s.Addresses, Ports: s.Ports, Node: s.NodeName,
	}
	if s.AllocatedAt != nil {
		r.AllocatedAt = s.AllocatedAt.Time
		if ttl := o.Spec.TTL; ttl != nil && ttl.Duration > 0 {
			r.ExpiresAt = r.AllocatedAt.Add(ttl.Duration)
		}
	}
	return r
}
