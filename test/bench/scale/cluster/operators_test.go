package cluster

import (
	"strings"
	"testing"
)

func TestPassesToComeAreThoseOfQueuesAndBacklogs(t *testing.T) {
	t.Parallel()
	const scrape = `# HELP dormouse_backlog_passes Passes that nobody waits for.
# TYPE dormouse_backlog_passes gauge
dormouse_backlog_passes{controller="elasticservice"} 9000
dormouse_backlog_passes{controller="server"} 1.5e+03
dormouse_elasticservice_phase_timestamp_seconds{namespace="games",phase="Asleep",service="workqueue_depth{"} 1.8e+09
# TYPE workqueue_depth gauge
workqueue_depth{controller="fleet",name="fleet",priority=""} 2
workqueue_depth{controller="server",name="server",priority=""} 0
workqueue_retries_total{controller="server",name="server"} 7
`
	if passes, err := passesIn(strings.NewReader(scrape)); err != nil || passes != 10_502 {
		t.Errorf("%v passes, %v; want 10502", passes, err)
	}
	if _, err := passesIn(strings.NewReader("workqueue_depth{name=\"fleet\"} many\n")); err == nil {
		t.Error("what can't be read is left out")
	}
}
