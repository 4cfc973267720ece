package cluster

import (
	"strings"
	"testing"
)

func TestPassesAreThoseOfQueuesBacklogsAndControllers(t *testing.T) {
	t.Parallel()
	const scrape = `# HELP dormouse_backlog_passes Passes that nobody waits for.
# TYPE dormouse_backlog_passes gauge
dormouse_backlog_passes{controller="elasticservice"} 9000
dormouse_backlog_passes{controller="server"} 1.5e+03
dormouse_elasticservice_phase_timestamp_seconds{namespace="games",phase="Asleep",service="workqueue_depth{"} 1.8e+09
controller_runtime_reconcile_total{controller="elasticservice",result="success"} 0
controller_runtime_reconcile_total{controller="server",result="requeue_after"} 1
controller_runtime_reconcile_total{controller="server",result="success"} 2
# TYPE workqueue_depth gauge
workqueue_depth{controller="fleet",name="fleet",priority=""} 2
workqueue_depth{controller="server",name="server",priority=""} 0
workqueue_retries_total{controller="server",name="server"} 7
`
	is, err := passesIn(strings.NewReader(scrape))
	if err != nil || is.left != 10_502 {
		t.Errorf("%v passes are left, %v; want 10502", is.left, err)
	}
	if is.made["server"] != 3 || !is.begunBy([]string{"server"}) {
		t.Errorf("%v passes of Servers were made, want 3", is.made["server"])
	}
	if is.begunBy([]string{"server", "elasticservice"}) {
		t.Error("a controller that has made no pass has begun")
	}
	if _, err := passesIn(strings.NewReader("workqueue_depth{name=\"fleet\"} many\n")); err == nil {
		t.Error("what can't be read is left out")
	}
}
