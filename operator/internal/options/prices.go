package options

import (
	"errors"
	"fmt"
	"math"
	"regexp"

	"dormouse.dev/dormouse/operator/internal/savings"
)

// maxPrice bounds a price for an hour, so that amounts have a number of digits that can be read.
const maxPrice = 1e6

var currency = regexp.MustCompile(`^[A-Za-z]{1,8}$`)

// checkPrices checks the prices and their currency.
func checkPrices(p savings.Prices) error {
	var errs []error
	for name, price := range map[string]float64{"price-cpu-hour": p.CPUHour, "price-memory-gib-hour": p.MemoryGiBHour} {
		if math.IsNaN(price) || price < 0 || price > maxPrice {
			errs = append(errs, fmt.Errorf("--%s=%v must be a number from 0 to %.0f", name, price, maxPrice))
		}
	}
	if p.Given() != (p.Currency != "") {
		errs = append(errs, errors.New("--currency belongs to --price-cpu-hour and --price-memory-gib-hour: set it and a price, or none of them"))
	} else if p.Given() && !currency.MatchString(p.Currency) {
		errs = append(errs, fmt.Errorf("--currency=%s must be up to 8 letters such as EUR", p.Currency))
	}
	return errors.Join(errs...)
}
