package store

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

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

// Some services answer in chunks, and don't say how much comes.
func TestAnArchiveWhoseLengthIsNotSaidIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	archive := bytes.Repeat([]byte("world "), 50_000)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/backups/one.tar.zst" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", `"one"`)
		w.Header().Set("Last-Modified", time.Unix(1, 0).UTC().Format(http.TimeFormat))
		for part := range slices.Chunk(archive, 64<<10) {
			_, _ = w.Write(part)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(service.Close)
	at, err := Open(Location{Bucket: "backups", Key: "one.tar.zst"}, S3{Endpoint: service.URL, Region: "x", AccessKeyID: "a", SecretAccessKey: "b"}, logr.Discard())
	check(t, err)
	defer at.Close()
	from, err := at.Open(t.Context())
	check(t, err)
	defer from.Close()
	got, err := io.ReadAll(from)
	if err != nil || !bytes.Equal(got, archive) {
		t.Errorf("%d of %d bytes are read, %v", len(got), len(archive), err)
	}
}
