package store

import (
	"errors"
	"path/filepath"
	"strings"
)

// Location is where an archive is: one of a file, an object of a bucket, and a directory that has a
// directory for each disk. The last is no store: a restoration copies from there.
type Location struct {
	File        string
	Bucket, Key string
	Dir         string
}

// ErrLocation says what ParseLocation takes for a store.
var ErrLocation = errors.New("file:///<directory>/<directory>/<file> or s3://<bucket>/<key>")

// ParseLocation reads a location. What is in it is taken as it is: nothing is escaped.
func ParseLocation(text string) (Location, error) {
	if dir, ok := strings.CutPrefix(text, "dir:"); ok && filepath.IsAbs(dir) {
		return Location{Dir: filepath.Clean(dir)}, nil
	}
	if file, ok := strings.CutPrefix(text, "file://"); ok {
		// The directory above the file's is that of all archives. It isn't made.
		if !filepath.IsAbs(file) || filepath.Clean(file) != file || strings.Count(file, "/") < 3 {
			return Location{}, ErrLocation
		}
		return Location{File: file}, nil
	}
	rest, ok := strings.CutPrefix(text, "s3://")
	bucket, key, hasKey := strings.Cut(rest, "/")
	if !ok || !hasKey || bucket == "" || key == "" {
		return Location{}, ErrLocation
	}
	return Location{Bucket: bucket, Key: key}, nil
}
