package route

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

func TestAPortHasTheWaitingPageThatItsSpecAsksFor(t *testing.T) {
	page := &v1alpha1.PortHTTP{WaitingPage: &v1alpha1.WaitingPage{Title: "Tea", Message: "soon"}}
	for name, c := range map[string]struct {
		protocol v1alpha1.Protocol
		http     *v1alpha1.PortHTTP
		took     time.Duration
		want     *proto.Page
	}{
		"nothing is said":      {v1alpha1.ProtocolHTTP, nil, time.Second, nil},
		"no page is asked for": {v1alpha1.ProtocolHTTP, &v1alpha1.PortHTTP{}, time.Second, nil},
		"the defaults":         {v1alpha1.ProtocolHTTP, &v1alpha1.PortHTTP{WaitingPage: &v1alpha1.WaitingPage{}}, 0, &proto.Page{}},
		"the last wake":        {v1alpha1.ProtocolHTTP, page, time.Second, &proto.Page{Title: "Tea", Message: "soon", Takes: time.Second}},
		"a clock that jumped":  {v1alpha1.ProtocolHTTP, page, -time.Second, &proto.Page{Title: "Tea", Message: "soon"}},
		"another protocol":     {v1alpha1.ProtocolTLS, page, time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			es := newService("lobby", "u1", 0).port("admin", c.protocol, 10001).port("web", c.protocol, 10002)
			es.Spec.Ports = []v1alpha1.PortSpec{{Name: "web", Protocol: c.protocol, HTTP: c.http}}
			if c.took != 0 {
				es.Status.LastWake = &v1alpha1.LastWake{Took: metav1.Duration{Duration: c.took}}
			}
			r := Build(es.ElasticService)
			if diff := cmp.Diff(c.want, r.Ports[1].Page); diff != "" {
				t.Errorf("page (-want +got):\n%s", diff)
			}
			if r.Ports[0].Page != nil {
				t.Error("another port has the page, too")
			}
			if r.Ports[0].MarksColdStarts || r.Ports[1].MarksColdStarts {
				t.Error("cold starts are marked, though nobody asks for that")
			}
		})
	}
}

func TestAPortMarksColdStartsWhereItsSpecAsksForThat(t *testing.T) {
	for protocol, want := range map[v1alpha1.Protocol]bool{v1alpha1.ProtocolHTTP: true, v1alpha1.ProtocolTLS: false} {
		es := newService("lobby", "u1", 0).port("admin", protocol, 10001).port("web", protocol, 10002)
		es.Spec.Ports = []v1alpha1.PortSpec{{Name: "web", HTTP: &v1alpha1.PortHTTP{ColdStartHeader: true}}}
		r := Build(es.ElasticService)
		if r.Ports[0].MarksColdStarts || r.Ports[1].MarksColdStarts != want {
			t.Errorf("%s: ports are marked %v and %v, want none and %v", protocol, r.Ports[0].MarksColdStarts, r.Ports[1].MarksColdStarts, want)
		}
	}
}
