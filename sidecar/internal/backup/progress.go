package backup

import (
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// progressPeriod is how often a long program says how far it is.
const progressPeriod = 10 * time.Second

// progress counts what was copied.
type progress struct {
	files, bytes atomic.Int64
}

// watch logs how far it is, until the returned function is called.
func (p *progress) watch(log logr.Logger) (stop func()) {
	ticker := time.NewTicker(progressPeriod)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				log.Info("It goes on", "files", p.files.Load(), "bytes", p.bytes.Load())
			case <-end:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(end)
		<-ended
	}
}
