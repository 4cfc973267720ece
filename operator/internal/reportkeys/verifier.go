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

	verified verified
}

// Verify returns whose the token is.
func (v *Verifier) Verify(ctx context.Context, token string) (serviceauth.Identity, error) {
	if len(token) > serviceauth.MaxTokenBytes {
		return v.Accounts.Verify(ctx, token) //nolint:wrapcheck // it says all
	}
	keys, now, sum := v.Keys.keys(), v.Keys.Now(), sumOf(token)
	claim, found := v.verified.find(sum, keys, now)
	if !found {
		signed, ours := reporttoken.Parse(token)
		if !ours {
			return v.Accounts.Verify(ctx, token) //nolint:wrapcheck // it says all
		}
		if len(keys.ring) == 0 {
			return serviceauth.Identity{}, fmt.Errorf("%w: those for reports aren't read yet", serviceauth.ErrKeysUnavailable)
		}
		var err error
		if claim, err = signed.Verify(now, keys.of); err != nil {
			return serviceauth.Identity{}, err //nolint:wrapcheck // it says all
		}
		v.verified.add(sum, claim, keys, now)
	}
	return serviceauth.Identity{Namespace: claim.Pod.Namespace, PodName: claim.Pod.Name, PodUID: claim.Pod.UID, ReportKey: claim.Key, Expires: claim.Expires}, nil
}
