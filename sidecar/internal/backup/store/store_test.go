package store

import (
	"errors"
	"os"
	"testing"

	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOfTwoTriesAtOnceOneFails(t *testing.T) {
	archive := t.TempDir() + "/survival/one.tar.zst"
	at, err := Open(Location{File: archive}, S3{}, logr.Discard())
	check(t, err)
	defer at.Close()
	older, err := at.Create(t.Context())
	check(t, err)
	newer, err := at.Create(t.Context())
	check(t, err)
	_, err = newer.Write([]byte("half"))
	check(t, err)
	if err := older.Commit(); !errors.Is(err, errOtherTry) {
		t.Errorf("the older one: %v", err)
	}
	_, err = newer.Write([]byte(" and half"))
	check(t, err)
	check(t, newer.Commit())
	if got, err := os.ReadFile(archive); err != nil || string(got) != "half and half" {
		t.Errorf("the archive is %q, %v", got, err)
	}
}

func TestNoErrorHasCredentialsInIt(t *testing.T) {
	s := S3{AccessKeyID: "theid", SecretAccessKey: "thesecret"}
	err := s.Hide(fault.Final("theid and thesecret are wrong"))
	if err.Error() != "… and … are wrong" || !fault.IsFinal(err) {
		t.Errorf("%v", err)
	}
	if err := s.Hide(fault.ErrCanceled); !errors.Is(err, fault.ErrCanceled) {
		t.Errorf("%v", err)
	}
}
