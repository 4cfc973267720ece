package errortracking

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/getsentry/sentry-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Tags of a report.
const (
	tagProgram    = "program"
	tagController = "controller"
	tagKind       = "kind"
	tagNamespace  = "namespace"
	tagName       = "name"
)

// Subject is what a report is about; empty where it is about no object.
type Subject struct {
	// Controller is the controller's name, and Kind that of its objects.
	Controller, Kind string
	// Key is the object's namespace and name.
	Key types.NamespacedName
}

func (s Subject) tags(program string) map[string]string {
	tags := map[string]string{tagProgram: program}
	for tag, value := range map[string]string{
		tagController: s.Controller, tagKind: s.Kind, tagNamespace: s.Key.Namespace, tagName: s.Key.Name,
	} {
		if value != "" {
			tags[tag] = value
		}
	}
	return tags
}

// Panic reports a panic that was recovered. A deferred function must call it, so that the stack
// is still the panic's. It fits httpserver.Options.OnPanic.
func (r *Reporter) Panic(value any, _ []byte) { r.PanicAbout(value, Subject{}) }

// PanicAbout is Panic with a subject.
func (r *Reporter) PanicAbout(value any, about Subject) {
	if r == nil || r.client == nil {
		return
	}
	stack := sentry.NewStacktrace()
	r.send(about, sentry.LevelFatal, "panic", sentry.Exception{
		Type: "panic", Value: fmt.Sprint(value), Stacktrace: stack,
		Mechanism: &sentry.Mechanism{Type: "panic", Handled: new(false)},
	}, origin(stack))
}

// Error reports an error.
func (r *Reporter) Error(err error, about Subject) {
	if r == nil || r.client == nil {
		return
	}
	kind := typeOf(err)
	r.send(about, sentry.LevelError, kind, sentry.Exception{Type: kind, Value: err.Error()}, skeleton(err.Error(), about.Key))
}

// send sends a report unless there are too many.
func (r *Reporter) send(about Subject, level sentry.Level, kind string, exception sentry.Exception, alike string) {
	fingerprint := []string{r.program, about.Controller, kind, alike}
	key := strings.Join(fingerprint, "\n") + "\n" + about.Key.String()
	if !r.repeats.first(key) {
		r.count(repeated)
		return
	}
	if !r.limit.Allow() {
		r.repeats.forget(key)
		r.count(dropped)
		return
	}
	r.client.CaptureEvent(&sentry.Event{
		Level: level, Tags: about.tags(r.program), Fingerprint: fingerprint, Exception: []sentry.Exception{exception},
	}, nil, nil)
}

// origin is the function that panicked: all panics of a function are one issue.
func origin(stack *sentry.Stacktrace) string {
	if stack == nil || len(stack.Frames) == 0 {
		return ""
	}
	last := stack.Frames[len(stack.Frames)-1]
	return last.Module + "." + last.Function
}

// typeOf names an error's kind: the API server's reason, or the type at the end of its chain.
func typeOf(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return reflect.TypeOf(err).String()
		}
		err = inner
	}
}

// skeleton is the part of an error's message that is the same for other objects: words that
// name something, or have numbers in them, are left out.
func skeleton(text string, key types.NamespacedName) string {
	words := strings.Fields(scrubText(text))
	for i, word := range words {
		bare := strings.Trim(word, `"'.,:;()`)
		names := strings.ContainsFunc(word, func(c rune) bool { return unicode.IsDigit(c) || c == '/' || c == '"' })
		if names || bare == key.Name || bare == key.Namespace {
			words[i] = "*"
		}
	}
	return strings.Join(words, " ")
}
