package store

import (
	"errors"
	"strings"

	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
)

// S3 is how a bucket's service is spoken to.
type S3 struct {
	// Endpoint is the service's URL.
	Endpoint, Region string
	// CAFile has certificates, in PEM, that count beside the system's. It may be missing.
	CAFile string
	// AccessKeyID and SecretAccessKey come from the environment.
	AccessKeyID, SecretAccessKey string
}

// Hide makes sure that an error has no credentials in it, whatever a service answers.
func (s S3) Hide(err error) error {
	text := err.Error()
	hidden := text
	for _, secret := range []string{s.SecretAccessKey, s.AccessKeyID} {
		if secret != "" {
			hidden = strings.ReplaceAll(hidden, secret, "…")
		}
	}
	if hidden == text {
		return err
	}
	if fault.IsFinal(err) {
		return fault.Final("%s", hidden)
	}
	return errors.New(hidden)
}
