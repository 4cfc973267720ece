package backup

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/sidecar/internal/backup/store"
)

func parse(line ...string) (Options, error) {
	env := map[string]string{"S3_ACCESS_KEY_ID": "id", "S3_SECRET_ACCESS_KEY": "secret"}
	return Parse(line[0], line[1:], func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}, os.Stderr)
}

func TestTheCommandLineIsAsJobsHaveIt(t *testing.T) {
	s3 := store.S3{Region: "us-east-1", AccessKeyID: "id", SecretAccessKey: "secret"}
	inBucket := store.S3{Endpoint: "https://s3.example.com/", Region: "eu", CAFile: "/bucket-ca/ca.crt", AccessKeyID: "id", SecretAccessKey: "secret"}
	none := store.S3{AccessKeyID: "id", SecretAccessKey: "secret"}
	for name, c := range map[string]struct {
		line []string
		want Options
	}{
		"backup to a file": {
			[]string{"backup", "--disk=world=/d/world", "--disk=mods=/d/mods", "--to=file:///backups/survival/b 1%20.tar.zst"},
			Options{Command: "backup", Disks: []Disk{{"world", "/d/world"}, {"mods", "/d/mods"}}, Archive: store.Location{File: "/backups/survival/b 1%20.tar.zst"}, S3: s3, Report: "/dev/termination-log"},
		},
		"backup to a bucket": {
			[]string{"backup", "--disk=world=/d", "--to=s3://b/a?#%/x.tar.zst", "--s3-endpoint=https://s3.example.com/", "--s3-region=eu", "--s3-ca-file=/bucket-ca/ca.crt", "--report=/r"},
			Options{Command: "backup", Disks: []Disk{{"world", "/d"}}, Archive: store.Location{Bucket: "b", Key: "a?#%/x.tar.zst"}, S3: inBucket, Report: "/r"},
		},
		"restore": {
			[]string{"restore", "--disk=world=/d", "--from=file:///b/s/x", "--sha256=" + strings.Repeat("a", 64), "--id=re.1-x"},
			Options{Command: "restore", Disks: []Disk{{"world", "/d"}}, Archive: store.Location{File: "/b/s/x"}, SHA256: strings.Repeat("a", 64), ID: "re.1-x", S3: s3, Report: "/dev/termination-log"},
		},
		"restore from disks": {
			[]string{"restore", "--disk=world=/d", "--from=dir:/source", "--id=x"},
			Options{Command: "restore", Disks: []Disk{{"world", "/d"}}, Archive: store.Location{Dir: "/source"}, ID: "x", S3: s3, Report: "/dev/termination-log"},
		},
		"settle": {
			[]string{"settle", "--disk=world=/d", "--id=x"},
			Options{Command: "settle", Disks: []Disk{{"world", "/d"}}, ID: "x", S3: none, Report: "/dev/termination-log"},
		},
		"drop-previous": {
			[]string{"drop-previous", "--disk=world=/d", "--id=x"},
			Options{Command: "drop-previous", Disks: []Disk{{"world", "/d"}}, ID: "x", S3: none, Report: "/dev/termination-log"},
		},
		"forget": {
			[]string{"forget", "--at=file:///b/s/x"},
			Options{Command: "forget", Archive: store.Location{File: "/b/s/x"}, S3: s3, Report: "/dev/termination-log"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(c.line...)
			check(t, err)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for says, line := range map[string]string{
		"--disk must be there":    "backup --to=file:///a/b/c",
		"is there twice":          "backup --disk=a=/a --disk=a=/b --to=file:///a/b/c",
		"with an absolute path":   "backup --disk=a=b --to=file:///a/b/c",
		"must be <name>=":         "backup --disk=../a=/b --to=file:///a/b/c",
		"--to must be":            "backup --disk=a=/a --to=dir:/a",
		"--to must be file":       "backup --disk=a=/a --to=file:///a",
		"must be file:///":        "backup --disk=a=/a --to=file:///a/../b/c",
		"--s3-endpoint must":      "backup --disk=a=/a --to=s3://b/c",
		"with a host and no path": "backup --disk=a=/a --to=s3://b/c --s3-endpoint=https://h/p",
		"--id must be":            "restore --disk=a=/a --from=file:///a/b/c",
		"--id must be a name":     "drop-previous --disk=a=/a --id=../x",
		"--sha256 must be":        "restore --disk=a=/a --from=file:///a/b/c --id=x --sha256=1",
		"--sha256 is for":         "restore --disk=a=/a --from=dir:/a --id=x --sha256=" + strings.Repeat("a", 64),
		"--at must be":            "forget",
		"not defined: -disk":      "forget --disk=a=/a",
		"--log-level must":        "forget --at=file:///a/b/c --log-level=loud",
	} {
		t.Run(line, func(t *testing.T) {
			if _, err := parse(strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("error %v, want %q in it", err, says)
			}
		})
	}
	if _, err := parse("backup", "--help"); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("help: %v", err)
	}
	_, err := Parse("forget", []string{"--at=s3://b/c", "--s3-endpoint=http://h"}, func(string) (string, bool) { return "", false }, os.Stderr)
	if err == nil || !strings.Contains(err.Error(), "S3_ACCESS_KEY_ID") {
		t.Errorf("without credentials: %v", err)
	}
}

func TestWrongSettingsAreReported(t *testing.T) {
	report := t.TempDir() + "/report"
	if code := Main("backup", []string{"--report=" + report}); code != codeFinal {
		t.Errorf("code %d, want %d", code, codeFinal)
	}
	var r Report
	text, err := os.ReadFile(report)
	check(t, err)
	check(t, json.Unmarshal(text, &r))
	if !strings.Contains(r.Error, "--to must be") {
		t.Errorf("report %s", text)
	}
}

func TestAReportFitsATerminationMessage(t *testing.T) {
	report := t.TempDir() + "/report"
	check(t, Report{Error: strings.Repeat("ü", 5000)}.write(report))
	text, err := os.ReadFile(report)
	check(t, err)
	var r Report
	check(t, json.Unmarshal(text, &r))
	if len(text) > 4096 || !strings.HasSuffix(r.Error, "ü…") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}
