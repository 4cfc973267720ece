package objectmetrics

import (
	"bytes"
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// partSize is how many series are written at a time.
const partSize = 256

// Write writes a gatherer's metrics. Where it is a Gatherer, those of objects come last. A collector that fails
// hides only its own metrics; where nothing is left, it is an error, and nothing is written.
func Write(g prometheus.Gatherer, to io.Writer, format expfmt.Format) error {
	var objects []*Family
	if ours, ok := g.(*Gatherer); ok {
		g, objects = ours.registry, ours.objects()
	}
	families, err := g.Gather()
	if err != nil && len(families)+len(objects) == 0 {
		return fmt.Errorf("gather the metrics: %w", err)
	}
	encoder := expfmt.NewEncoder(to, format)
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return fmt.Errorf("write the metric %s: %w", family.GetName(), err)
		}
	}
	for _, family := range objects {
		if err := family.write(to, format); err != nil {
			return fmt.Errorf("write the metric %s: %w", family.of.Name, err)
		}
	}
	// OpenMetrics ends with a line of its own.
	if closer, ok := encoder.(expfmt.Closer); ok {
		if err := closer.Close(); err != nil {
			return fmt.Errorf("write the end of the metrics: %w", err)
		}
	}
	return nil
}

// write writes a family as one; as text it does so in parts, and what stands above each part is written once.
func (f *Family) write(to io.Writer, format expfmt.Format) (err error) {
	size := len(f.values)
	if kind := format.FormatType(); kind == expfmt.TypeTextPlain || kind == expfmt.TypeOpenMetrics {
		size = partSize
	}
	encoder := expfmt.NewEncoder(to, format)
	f.parts(size, func(part *dto.MetricFamily) {
		if err == nil {
			err = encoder.Encode(part)
		}
		part.Help = nil
		encoder = expfmt.NewEncoder(&withoutFirstLine{to: to}, format)
	})
	return err //nolint:wrapcheck // the caller does
}

// withoutFirstLine leaves out the first line, which is a metric's type.
type withoutFirstLine struct {
	to   io.Writer
	over bool
}

// Write implements io.Writer.
func (w *withoutFirstLine) Write(text []byte) (int, error) {
	all := len(text)
	if !w.over {
		_, rest, over := bytes.Cut(text, []byte("\n"))
		if w.over = over; !over {
			return all, nil
		}
		text = rest
	}
	if _, err := w.to.Write(text); err != nil {
		return 0, err //nolint:wrapcheck // it is the other one's
	}
	return all, nil
}
