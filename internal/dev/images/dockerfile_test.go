package images_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stage is one stage of a Dockerfile, with what is said last of each.
type stage struct {
	from       string
	name       string
	user       string
	entrypoint []string
	// copied maps the files that come out of other stages to "stage:path".
	copied map[string]string
	run    []string
}

// dockerfile is what the tests want to know of one.
type dockerfile struct {
	// args are the build arguments before the first stage, with their defaults.
	args   map[string]string
	stages []stage
}

// parseDockerfile reads the instructions that the project uses, in exec form
// where there are two forms, and refuses others.
func parseDockerfile(text string) (dockerfile, error) {
	d := dockerfile{args: map[string]string{}}
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		instruction, rest, _ := strings.Cut(line, " ")
		if err := d.add(strings.ToUpper(instruction), strings.TrimSpace(rest)); err != nil {
			return d, fmt.Errorf("read %q: %w", line, err)
		}
	}
	return d, nil
}

func (d *dockerfile) add(instruction, rest string) error {
	words := strings.Fields(rest)
	if instruction == "FROM" {
		return d.from(words)
	}
	if len(d.stages) == 0 {
		if instruction != "ARG" {
			return fmt.Errorf("%s before the first stage", instruction)
		}
		name, value, _ := strings.Cut(rest, "=")
		d.args[name] = value
		return nil
	}
	current := &d.stages[len(d.stages)-1]
	switch instruction {
	case "ARG", "WORKDIR":
	case "USER":
		current.user = rest
	case "ENTRYPOINT":
		if err := json.Unmarshal([]byte(rest), &current.entrypoint); err != nil {
			return fmt.Errorf("want the exec form: %w", err)
		}
	case "COPY":
		if from, ok := strings.CutPrefix(words[0], "--from="); ok && len(words) == 3 {
			current.copied[words[2]] = from + ":" + words[1]
		}
	case "RUN":
		current.run = append(current.run, rest)
	default:
		return fmt.Errorf("an instruction that this test doesn't know")
	}
	return nil
}

func (d *dockerfile) from(words []string) error {
	if len(words) > 0 && strings.HasPrefix(words[0], "--") {
		words = words[1:]
	}
	s := stage{copied: map[string]string{}}
	switch {
	case len(words) == 1:
	case len(words) == 3 && strings.EqualFold(words[1], "as"):
		s.name = words[2]
	default:
		return fmt.Errorf("want an image, or an image AS a name")
	}
	s.from = words[0]
	d.stages = append(d.stages, s)
	return nil
}

func readDockerfile(t *testing.T, path string) dockerfile {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := parseDockerfile(string(text))
	if err != nil {
		t.Fatalf("parse %s: %v", path, err)
	}
	return d
}

func TestDockerfilesAreReadAsDockerReadsThem(t *testing.T) {
	d, err := parseDockerfile("# comment\nARG BASE=a\nFROM --platform=x ${BASE} AS one\nRUN make \\\n  all\n" +
		"FROM scratch\nCOPY --from=one /x /y\nuser 1:2\nENTRYPOINT [\"/y\", \"z\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	want := dockerfile{args: map[string]string{"BASE": "a"}, stages: []stage{
		{from: "${BASE}", name: "one", run: []string{"make    all"}, copied: map[string]string{}},
		{from: "scratch", user: "1:2", entrypoint: []string{"/y", "z"}, copied: map[string]string{"/y": "one:/x"}},
	}}
	if diff := cmp.Diff(want, d, cmp.AllowUnexported(dockerfile{}, stage{})); diff != "" {
		t.Errorf("dockerfile (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"USER 1", "FROM a b", "FROM a\nENTRYPOINT /x", "FROM a\nVOLUME /x"} {
		if _, err := parseDockerfile(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}
