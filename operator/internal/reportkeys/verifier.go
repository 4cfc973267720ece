package reportkeys

import (
	"context"
	"fmt"

	"dormouse.dev/dormouse/internal/reporttoken"
	"dormouse.dev/dormouse/internal/serviceauth"
)

// Verifier verifies sidecars' own tokens, and leaves service accounts' to another verifier.
type Verifier struct {
	Keys     *Keeper
	Accounts interface {
		Verify(ctx context.Context, token string) (serviceauth.Identity, error)
	}
}

// Verify returns whose the token is.
func (v *Verifier) Verify(ctx context.Context, token string) (serviceauth.Identity, error) {
	var signed reporttoken.Token
	ours := len(token) <= serviceauth.MaxTokenBytes
	if ours {
		signed, ours = reporttoken.Parse(token)
	}
	if !ours {
		return v.Accounts.Verify(ctx, token) //nolint:wrapcheck // it says all
	}
	keys := v.Keys.keys()
	if len(keys.ring) == 0 {
		return serviceauth.Identity{}, fmt.Errorf("%w: those for reports aren't read yet", serviceauth.ErrKeysUnavailable)
	}
	pod, id, err := signed.Verify(v.Keys.Now(), keys.of)
	if err != nil {
		return serviceauth.Identity{}, err //nolint:wrapcheck // it says all
	}
	return serviceauth.Identity{Namespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, ReportKey: id}, nil
}
