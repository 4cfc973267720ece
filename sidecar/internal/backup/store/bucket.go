package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
)

// Bounds of what a bucket's service is asked.
const (
	// PartSize is what is uploaded at once, and the memory that takes. A service takes 10,000 parts of
	// an object: 156 GiB.
	PartSize = 16 << 20
	// mostRetries is how often the library makes a request, with a second between them at most.
	mostRetries = 6
	// mostBreaks is how often a download goes on, without a byte in between.
	mostBreaks = 5
	// tidyTime is for deleting what must not stay, once the program was told to end.
	tidyTime = 20 * time.Second
)

// bucket keeps an archive as an object.
type bucket struct {
	client    *minio.Client
	transport *http.Transport
	name, key string
	// service is how it is spoken to.
	service S3
	log     logr.Logger
}

func newBucket(at Location, s3 S3, log logr.Logger) (*bucket, error) {
	u, err := url.Parse(s3.Endpoint)
	if err != nil {
		return nil, fault.Final("read the endpoint: %w", err)
	}
	secure := u.Scheme == "https"
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("prepare for the bucket: %w", err)
	}
	if secure {
		if err := trust(transport, s3.CAFile); err != nil {
			return nil, err
		}
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(s3.AccessKeyID, s3.SecretAccessKey, ""),
		Secure: secure, Region: s3.Region, Transport: transport, MaxRetries: mostRetries,
	})
	if err != nil {
		return nil, fault.Final("prepare for the bucket: %w", err)
	}
	return &bucket{client: client, transport: transport, name: at.Bucket, key: at.Key, service: s3, log: log}, nil
}

// trust adds a file's certificates to those of the system, where there is the file.
func trust(transport *http.Transport, file string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the certificates of the bucket's service: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return fault.Final("the certificates of the bucket's service: %s has none in PEM", file)
	}
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	transport.TLSClientConfig.RootCAs = pool
	return nil
}

// Close implements Store.
func (b *bucket) Close() { b.transport.CloseIdleConnections() }

// explain says what went wrong in words of who set the bucket up.
func (b *bucket) explain(verb string, err error) error {
	if err == nil || errors.Is(err, fault.ErrCanceled) || fault.IsFinal(err) {
		return err
	}
	response := minio.ToErrorResponse(err)
	switch response.Code {
	case "NoSuchBucket", "InvalidBucketName":
		return fault.Final("%s the archive: there is no bucket %s at %s", verb, b.name, b.service.Endpoint)
	case "NoSuchKey":
		return fault.Final("%s the archive: there is no object %s in bucket %s", verb, b.key, b.name)
	}
	switch code := response.StatusCode; code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Final("%s the archive in bucket %s: the service refuses (%s): check the credentials in the Secret, what they may do there, and the region: %w", verb, b.name, response.Code, err)
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed, http.StatusTooManyRequests:
	default:
		if code >= 400 && code < 499 {
			return fault.Final("%s the archive in bucket %s: the service refuses (%s): %w", verb, b.name, response.Code, err)
		}
	}
	return fmt.Errorf("%s the archive in bucket %s: %w", verb, b.name, err)
}

// Create begins a multipart upload.
func (b *bucket) Create(ctx context.Context) (Sink, error) {
	// A try that was killed leaves an upload, whose parts would be paid for until somebody looks.
	if err := b.client.RemoveIncompleteUpload(ctx, b.name, b.key); err != nil {
		if ctx.Err() != nil {
			return nil, fault.ErrCanceled
		}
		// Credentials may be good for writing, and not for listing.
		b.log.Info("What an earlier try may have uploaded isn't deleted", "err", b.service.Hide(err).Error())
	}
	r, w := io.Pipe()
	s := &upload{bucket: b, ctx: ctx, to: w, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		_, s.err = b.client.PutObject(ctx, b.name, b.key, r, -1, minio.PutObjectOptions{
			PartSize: PartSize, ContentType: "application/zstd",
		})
		if s.err != nil {
			s.err = b.explain("write", s.err)
			if ctx.Err() != nil {
				s.err = fault.ErrCanceled
			}
			_ = r.CloseWithError(s.err)
		}
	}()
	return s, nil
}

// upload is an archive that is uploaded.
type upload struct {
	bucket *bucket
	ctx    context.Context
	to     *io.PipeWriter
	ended  chan struct{}
	// err is how it ended, once it has.
	err error
}

// Write implements Sink.
func (u *upload) Write(p []byte) (int, error) {
	return u.to.Write(p) //nolint:wrapcheck // it is explained
}

// Commit implements Sink.
func (u *upload) Commit() error {
	_ = u.to.Close()
	<-u.ended
	if u.err == nil {
		return nil
	}
	// The service may have done what it didn't answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), tidyTime)
	defer cancel()
	_ = u.bucket.client.RemoveObject(ctx, u.bucket.name, u.bucket.key, minio.RemoveObjectOptions{})
	return u.err
}

// abortedError wraps an error so that it can't be an io.EOF, at which the library would finish the object.
type abortedError struct{ why error }

func (e abortedError) Error() string { return "aborted: " + e.why.Error() }

// Abort has the library abort the upload.
func (u *upload) Abort(why error) {
	_ = u.to.CloseWithError(abortedError{why})
	<-u.ended
}

// Remove implements Store.
func (b *bucket) Remove(ctx context.Context) error {
	err := b.client.RemoveObject(ctx, b.name, b.key, minio.RemoveObjectOptions{})
	if err == nil {
		err = b.client.RemoveIncompleteUpload(ctx, b.name, b.key)
		if minio.ToErrorResponse(err).Code == "AccessDenied" {
			err = nil
		}
	}
	switch minio.ToErrorResponse(err).Code {
	case "NoSuchKey", "NoSuchBucket", "NoSuchUpload":
		return nil
	}
	if ctx.Err() != nil {
		return fault.ErrCanceled
	}
	return b.explain("delete", err)
}

// Open implements Store.
func (b *bucket) Open(ctx context.Context) (io.ReadCloser, error) {
	d := &download{bucket: b, ctx: ctx}
	if err := d.request(); err != nil {
		return nil, err
	}
	return d, nil
}

// download reads an object, and goes on where a connection broke.
type download struct {
	bucket *bucket
	ctx    context.Context
	body   io.ReadCloser
	etag   string
	// at is how much was read, of size, which is below zero where the service doesn't say it.
	at, size int64
	breaks   int
}

// request asks for what wasn't read yet.
func (d *download) request() error {
	opts := minio.GetObjectOptions{}
	if d.at > 0 {
		if err := errors.Join(opts.SetRange(d.at, 0), opts.SetMatchETag(d.etag)); err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
	}
	core := minio.Core{Client: d.bucket.client}
	body, info, _, err := core.GetObject(d.ctx, d.bucket.name, d.bucket.key, opts)
	if err != nil {
		if d.ctx.Err() != nil {
			return fault.ErrCanceled
		}
		return d.bucket.explain("read", err)
	}
	d.body = body
	if d.etag == "" {
		d.etag, d.size = info.ETag, info.Size
	}
	return nil
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	for {
		if d.at == d.size {
			return 0, io.EOF
		}
		if d.body == nil {
			if err := d.request(); err != nil {
				return 0, err
			}
		}
		if d.size >= 0 {
			p = p[:min(int64(len(p)), d.size-d.at)]
		}
		n, err := d.body.Read(p)
		d.at += int64(n)
		if n > 0 {
			d.breaks = 0
			return n, nil
		}
		if err == nil {
			continue
		}
		if d.size < 0 && errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		_ = d.body.Close()
		d.body = nil
		if d.breaks++; d.breaks > mostBreaks || d.ctx.Err() != nil {
			// Wrapped: it must not be taken for the archive's own end.
			return 0, fmt.Errorf("read the archive in bucket %s: the connection broke: %w", d.bucket.name, err)
		}
		d.bucket.log.Info("A connection to the bucket's service broke, and the download goes on", "at", d.at, "size", d.size)
	}
}

// Close implements io.Closer.
func (d *download) Close() error {
	if d.body == nil {
		return nil
	}
	return d.body.Close() //nolint:wrapcheck // nobody looks
}
