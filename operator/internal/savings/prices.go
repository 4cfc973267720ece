package savings

import (
	"fmt"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Prices are what the administrator pays. Their zero value is none.
type Prices struct {
	// CPUHour is that of a core for an hour, and MemoryGiBHour that of a GiB.
	CPUHour, MemoryGiBHour float64
	// Currency is what they are in, such as EUR.
	Currency string
}

// Given reports whether there is any.
func (p Prices) Given() bool { return p.CPUHour > 0 || p.MemoryGiBHour > 0 }

// Amount is what was saved in money, to a cent; empty without prices.
func (p Prices) Amount(s *v1alpha1.Saved) string {
	if !p.Given() {
		return ""
	}
	const hour = 3600
	cores, gibibytes := float64(s.MilliCPUSeconds)/1000/hour, float64(s.MebibyteSeconds)/1024/hour
	return fmt.Sprintf("%.2f %s", cores*p.CPUHour+gibibytes*p.MemoryGiBHour, p.Currency)
}
