package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPorts(t *testing.T) {
	for name, test := range map[string]struct {
		list    string
		want    []string
		wantErr bool
	}{
		"none":         {list: ""},
		"several":      {list: "7000, 7001", want: []string{"127.0.0.1:7000", "127.0.0.1:7001"}},
		"not a number": {list: "http", wantErr: true},
		"zero":         {list: "0", wantErr: true},
		"too large":    {list: "65536", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parsePorts("127.0.0.1", test.list)
			if (err != nil) != test.wantErr {
				t.Fatalf("error = %v, want one: %v", err, test.wantErr)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCrashesNeedAFileToCountIn(t *testing.T) {
	if _, err := parseOptions([]string{"--crash-first=1"}); err == nil {
		t.Error("no error for --crash-first without --crash-file")
	}
}
