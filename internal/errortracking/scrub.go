package errortracking

import (
	"path"
	"regexp"
	"strings"

	"github.com/getsentry/sentry-go"
)

// maxText bounds an error's message.
const maxText = 1000

// scrub builds a report anew from the few fields that may leave the cluster, so that nothing
// else does, whatever the SDK may add.
func scrub(e *sentry.Event) *sentry.Event {
	clean := &sentry.Event{
		EventID:     e.EventID,
		Timestamp:   e.Timestamp,
		Level:       e.Level,
		Platform:    e.Platform,
		Sdk:         sentry.SdkInfo{Name: e.Sdk.Name, Version: e.Sdk.Version},
		Environment: e.Environment,
		ServerName:  e.ServerName,
		Tags:        map[string]string{},
	}
	if e.Release != unknownRelease {
		clean.Release = e.Release
	}
	for _, part := range e.Fingerprint {
		clean.Fingerprint = append(clean.Fingerprint, scrubText(part))
	}
	for _, tag := range []string{tagProgram, tagController, tagKind, tagNamespace, tagName} {
		if value, ok := e.Tags[tag]; ok {
			clean.Tags[tag] = value
		}
	}
	for _, exception := range e.Exception {
		clean.Exception = append(clean.Exception, sentry.Exception{
			Type: exception.Type, Value: scrubText(exception.Value), Mechanism: exception.Mechanism,
			Stacktrace: scrubStack(exception.Stacktrace),
		})
	}
	return clean
}

// scrubStack keeps names and lines: no variables, no source text, and no paths of
// the machine that built the program.
func scrubStack(stack *sentry.Stacktrace) *sentry.Stacktrace {
	if stack == nil {
		return nil
	}
	clean := &sentry.Stacktrace{}
	for _, frame := range stack.Frames {
		file := frame.Filename
		if file == "" {
			file = path.Base(frame.AbsPath)
		}
		clean.Frames = append(clean.Frames, sentry.Frame{
			Function: frame.Function, Module: frame.Module, Filename: file, Lineno: frame.Lineno, InApp: frame.InApp,
		})
	}
	return clean
}

var (
	// quoted matches the beginning of what the API server quotes of an object that it refuses.
	// The object determines how much follows.
	quoted = regexp.MustCompile(`(?i)\b((?:invalid|unsupported|duplicate|required) value|too (?:long|many|few)|must validate)\b.*`)
	secret = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?|(?i:bearer|basic)\s+[\w.~+/=-]{8,}`)
	user   = regexp.MustCompile(`://[^/\s@"]+@`)
)

// scrubText removes from an error's message what may be an object's content or a secret, and
// bounds its length.
func scrubText(text string) string {
	text = strings.ToValidUTF8(text, "?")
	text, _, _ = strings.Cut(text, "\n")
	text = quoted.ReplaceAllString(text, "$1 [removed]")
	text = secret.ReplaceAllString(text, "[removed]")
	text = user.ReplaceAllString(text, "://[removed]@")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
