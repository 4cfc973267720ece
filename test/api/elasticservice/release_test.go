package elasticservice_test

import (
	"strings"
	"testing"
)

func TestHowManyAreReleasedAtOnceIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ value, want string }{
		"all":         {"0", ""},
		"one":         {"1", ""},
		"the most":    {"1000", ""},
		"fewer":       {"-1", "should be greater than or equal to 0"},
		"too many":    {"1001", "should be less than or equal to 1000"},
		"in words":    {"all", "must be of type integer"},
		"not a whole": {"1.5", "must be of type integer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := try(t, spec("{hold: {releaseConcurrency: "+c.value+"}}"))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
