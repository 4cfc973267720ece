// Package store keeps an archive in a file or in a bucket. It doesn't know what is in it. Faults that
// another try can't mend are fault.FinalErrors, and no error has credentials in it once S3.Hide saw it.
package store

import (
	"context"
	"io"

	"github.com/go-logr/logr"
)

// Store is where an archive is kept.
type Store interface {
	// Create begins to write the archive.
	Create(ctx context.Context) (Sink, error)
	// Open reads the archive.
	Open(ctx context.Context) (io.ReadCloser, error)
	// Remove deletes the archive, and what an earlier try to write it left. One that isn't there is no error.
	Remove(ctx context.Context) error
	// Close ends the use of the store.
	Close()
}

// Sink takes an archive. One of Commit and Abort is called, once.
type Sink interface {
	io.Writer
	// Commit has the archive be there, whole and durable. After an error nothing is there.
	Commit() error
	// Abort leaves nothing there. why is never nil.
	Abort(why error)
}

// Open opens the store of an archive that is in a file or in a bucket. s3 counts for a bucket only.
func Open(at Location, s3 S3, log logr.Logger) (Store, error) {
	if at.Bucket != "" {
		return newBucket(at, s3, log)
	}
	return newFile(at.File)
}
