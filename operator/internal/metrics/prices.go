package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/operator/internal/savings"
)

// RegisterPrices adds the administrator's prices, by which dashboards make an amount of what was
// saved. Without prices there are no series.
func RegisterPrices(r prometheus.Registerer, p savings.Prices) {
	price := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dormouse_price", Help: "What a resource costs for an hour: cpu is a core's, and memory a GiB's. There is none unless the operator was told.",
	}, []string{"resource", "currency"})
	r.MustRegister(price)
	if p.Given() {
		price.WithLabelValues("cpu", p.Currency).Set(p.CPUHour)
		price.WithLabelValues("memory", p.Currency).Set(p.MemoryGiBHour)
	}
}
