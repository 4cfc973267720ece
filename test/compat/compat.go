// Package compat checks that programs of two releases understand each other, by samples
// of what the programs of an earlier release say.
package compat

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Samples plays the samples of a message, one of each earlier release, which are
// testdata/<release>/<name>.json and have each field set. Today's programs must read what
// the message says, to the last field, and say as much themselves. strict names the
// releases whose programs refuse a message with a field that they don't know: such a
// message has no new fields, or, as in "8d9b056 but looked", only one that is a reply to what
// such a program never says.
func Samples[T any](t *testing.T, name string, strict ...string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*", name+".json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sample of %s (%v)", name, err)
	}
	for _, file := range files {
		release := filepath.Base(filepath.Dir(file))
		said, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var message T
		reader := json.NewDecoder(bytes.NewReader(said))
		reader.DisallowUnknownFields()
		if err := reader.Decode(&message); err != nil {
			t.Errorf("%s of %s isn't understood: %v", name, release, err)
			continue
		}
		again, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(parse(t, said), parse(t, again)); diff != "" {
			t.Errorf("of %s of %s something is lost (-said +understood):\n%s", name, release, diff)
		}
		old := map[string]bool{}
		paths(parse(t, said), "", old)
		for _, s := range strict {
			its, but, _ := strings.Cut(s, " but ")
			if its != release {
				continue
			}
			for path := range fields(reflect.TypeFor[T](), "") {
				if !old[path] && path != but {
					t.Errorf("%s has a field %s, and programs of %s refuse the message for that", name, path, release)
				}
			}
		}
	}
}

func parse(t *testing.T, text []byte) any {
	t.Helper()
	var content any
	if err := json.Unmarshal(text, &content); err != nil {
		t.Fatal(err)
	}
	return content
}

// paths are the fields that a message has, each as in game.players.current. Entries of a
// map are not told apart from fields.
func paths(content any, at string, into map[string]bool) {
	switch c := content.(type) {
	case map[string]any:
		for name, value := range c {
			into[at+name] = true
			paths(value, at+name+".", into)
		}
	case []any:
		for _, value := range c {
			paths(value, at, into)
		}
	}
}

// fields are those that a type has, likewise. What is in maps is not looked at.
func fields(of reflect.Type, at string) map[string]bool {
	found := map[string]bool{}
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() {
		return found
	}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := at + name + "."
		switch {
		case name == "" && field.Anonymous:
			inner = at
		case name == "" || name == "-":
			continue
		default:
			found[at+name] = true
		}
		for path := range fields(field.Type, inner) {
			found[path] = true
		}
	}
	return found
}
