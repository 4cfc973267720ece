package planner

import (
	"math"
	"math/big"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxReplicas is the most that can be asked of a target.
const maxReplicas = 10000

// scaled is a*b/c, rounded up, for numbers that aren't negative. What is too large is the
// largest number, and so is anything divided by 0.
func scaled(a, b, c int64) int64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	if c <= 0 {
		return math.MaxInt64
	}
	quotient, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c), new(big.Int))
	if rest.Sign() > 0 {
		quotient.Add(quotient, big.NewInt(1))
	}
	if !quotient.IsInt64() {
		return math.MaxInt64
	}
	return quotient.Int64()
}

// sum is a+b for numbers that aren't negative; what is too large is the largest number.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// bounded is a number of Servers that can be asked for.
func bounded(n int64) int32 {
	return int32(max(0, min(n, maxReplicas))) //nolint:gosec // it is bounded
}

// or is what a field says, or its default.
func or[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// durationOr is a duration of the spec, or its default.
func durationOr(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return max(0, d.Duration)
}
