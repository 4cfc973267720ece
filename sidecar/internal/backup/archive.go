package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"

	"github.com/go-logr/logr"
	"github.com/klauspost/compress/zstd"

	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
	"dormouse.dev/dormouse/sidecar/internal/backup/store"
)

// maxWindow bounds the memory that unpacking takes. What zstd makes below its --ultra levels, and
// without --long, needs 8 MiB.
const maxWindow = 32 << 20

// counter counts and hashes what is written to a sink.
type counter struct {
	to    io.Writer
	hash  hash.Hash
	bytes int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.hash.Write(p[:n])
	c.bytes += int64(n)
	return n, err //nolint:wrapcheck // the sink says what it is about
}

func (c *counter) sum() string { return hex.EncodeToString(c.hash.Sum(nil)) }

// backup packs the disks into an archive.
func backup(ctx context.Context, o Options, log logr.Logger) (Report, error) {
	at, err := store.Open(o.Archive, o.S3, log)
	if err != nil {
		return Report{}, err
	}
	defer at.Close()
	to, err := at.Create(ctx)
	if err != nil {
		return Report{}, err
	}
	report, err := pack(ctx, o.Disks, to, log)
	if err == nil {
		err = fault.Canceled(ctx)
	}
	if err != nil {
		to.Abort(err)
		return Report{}, err
	}
	if err := to.Commit(); err != nil {
		return Report{}, err
	}
	return report, nil
}

// pack writes the archive's bytes.
func pack(ctx context.Context, disks []Disk, to io.Writer, log logr.Logger) (Report, error) {
	var p progress
	defer p.watch(log)()
	counted := &counter{to: to, hash: sha256.New()}
	compressed, err := zstd.NewWriter(counted, zstd.WithEncoderConcurrency(min(runtime.GOMAXPROCS(0), 4)))
	if err != nil {
		return Report{}, fmt.Errorf("compress: %w", err)
	}
	w := newWalker(ctx, compressed, &p)
	err = w.all(disks)
	if closeErr := compressed.Close(); err == nil && closeErr != nil {
		err = closeErr
	}
	if err != nil {
		return Report{}, err
	}
	log.Info("The disks are read", "files", p.files.Load(), "bytes", p.bytes.Load(), "archive", counted.bytes,
		"leftOut", w.skipped, "changed", w.changed)
	return Report{
		Bytes: counted.bytes, Files: p.files.Load(), SHA256: counted.sum(), Disks: names(disks), Changed: w.changed,
	}, nil
}

// all writes the disks and the archive's end.
func (w *walker) all(disks []Disk) error {
	for _, d := range disks {
		if err := w.disk(d); err != nil {
			return err
		}
	}
	return w.to.Close() //nolint:wrapcheck // the sink says what it is about
}

func names(disks []Disk) []string {
	all := make([]string, 0, len(disks))
	for _, d := range disks {
		all = append(all, d.Name)
	}
	return all
}

// source is what a restoration extracts: a tar archive.
type source struct {
	io.Reader
	// end is called once the archive was read. It fails if there is something wrong with it.
	end func() error
	// close ends it, at any time.
	close func()
	// broken is what went wrong while it was fetched: not the archive's fault.
	broken func() error
}

// unpack opens an archive.
func unpack(ctx context.Context, o Options, log logr.Logger) (*source, *Report, error) {
	at, err := store.Open(o.Archive, o.S3, log)
	if err != nil {
		return nil, nil, err
	}
	from, err := at.Open(ctx)
	if err != nil {
		at.Close()
		return nil, nil, err
	}
	fetched := &fetched{ctx: ctx, from: from, hash: sha256.New()}
	plain, err := zstd.NewReader(fetched, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		_ = from.Close()
		at.Close()
		return nil, nil, fmt.Errorf("unpack: %w", err)
	}
	report := &Report{}
	end := func() error {
		// The check sums of zstd and what may be behind the archive's end are looked at, too.
		if _, err := io.Copy(io.Discard, plain); err != nil {
			return err //nolint:wrapcheck // the caller does
		}
		if _, err := io.Copy(io.Discard, fetched); err != nil {
			return err //nolint:wrapcheck // the caller does
		}
		report.Bytes, report.SHA256 = fetched.bytes, hex.EncodeToString(fetched.hash.Sum(nil))
		if o.SHA256 != "" && o.SHA256 != report.SHA256 {
			return fault.Final("the archive was changed: its SHA-256 is %s, not %s", report.SHA256, o.SHA256)
		}
		return nil
	}
	done := func() {
		plain.Close()
		_ = from.Close()
		at.Close()
	}
	return &source{Reader: plain, end: end, close: done, broken: func() error { return fetched.err }}, report, nil
}

// fetched is an archive's bytes as they come.
type fetched struct {
	ctx   context.Context
	from  io.Reader
	hash  hash.Hash
	bytes int64
	// err is why they ended early.
	err error
}

func (f *fetched) Read(p []byte) (int, error) {
	if err := fault.Canceled(f.ctx); err != nil {
		f.err = err
		return 0, err
	}
	n, err := f.from.Read(p)
	f.hash.Write(p[:n])
	f.bytes += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err //nolint:wrapcheck // the store says what it is about
}

// copyOf is the disks in a directory as an archive.
func copyOf(ctx context.Context, from []Disk) (*source, *Report) {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	walker := newWalker(ctx, w, &progress{})
	ended := make(chan struct{})
	var err error
	go func() {
		defer close(ended)
		if err = walker.all(from); err != nil {
			_ = w.CloseWithError(err)
			return
		}
		_ = w.Close()
	}()
	report := &Report{}
	end := func() error {
		_, copyErr := io.Copy(io.Discard, r)
		<-ended
		report.Changed = walker.changed
		return errors.Join(err, copyErr)
	}
	done := func() {
		cancel()
		_ = r.Close()
		<-ended
	}
	return &source{Reader: r, end: end, close: done, broken: func() error {
		_ = r.Close()
		<-ended
		return err
	}}, report
}
