package promquery

import (
	"math"
	"strings"

	promapi "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/text"
)

// number makes a number of a query's result: a scalar as it is, an instant vector's values added
// up. It is never negative: that would hide others in a sum. What isn't known is an error.
func number(result model.Value, warnings promapi.Warnings) (float64, error) {
	for _, warning := range warnings {
		// Prometheus 2.48 to 2.53 had hints about style here, which are apart since.
		if !strings.HasPrefix(warning, "PromQL info") {
			// Something was left out: a part of a Thanos that didn't answer, for example.
			return 0, outbound.Failure(outbound.BadAnswer, "The answer has a warning, so it may not be complete: %s", text.Plain(warning, outbound.MaxQuoted))
		}
	}
	switch r := result.(type) {
	case *model.Scalar:
		return float64(r.Value), checkValue(float64(r.Value))
	case model.Vector:
		if len(r) == 0 {
			return 0, outbound.Failure(outbound.BadAnswer,
				`The query has no result: correct it, or end it with "or vector(0)" where that means that nobody is there`)
		}
		sum := 0.0
		for _, sample := range r {
			if sample.Histogram != nil {
				return 0, outbound.Failure(outbound.BadAnswer, "The query's result is a histogram: take a number of it, with histogram_count() for example")
			}
			if err := checkValue(float64(sample.Value)); err != nil {
				return 0, err
			}
			sum += float64(sample.Value)
		}
		return sum, checkValue(sum)
	case model.Matrix:
		return 0, outbound.Failure(outbound.BadAnswer, "The query's result is a range: put a function such as rate() or max_over_time() around it")
	}
	return 0, outbound.Failure(outbound.BadAnswer, "The query's result is no number")
}

// checkValue returns why a value says nothing.
func checkValue(value float64) error {
	switch {
	case math.IsNaN(value):
		return outbound.Failure(outbound.BadAnswer, "The query's result is not a number (NaN): does it divide by zero?")
	case math.IsInf(value, 0):
		return outbound.Failure(outbound.BadAnswer, "The query's result is infinite: does it divide by zero?")
	case value < 0:
		return outbound.Failure(outbound.BadAnswer, "The query's result has a negative number, %v: it would hide others", value)
	}
	return nil
}
