package audit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const auditLines = `{"verb":"list","requestURI":"/api/v1/pods","user":{"username":"system:serviceaccount:dormouse-system:a"},"objectRef":{"resource":"pods","apiVersion":"v1"},"responseStatus":{"code":403,"message":"no"},"requestReceivedTimestamp":"2026-01-02T03:04:05.000000Z","annotations":{"authorization.k8s.io/decision":"forbid"}}
{"verb":"update","requestURI":"/apis/apps/v1/namespaces/g/deployments/x/scale","user":{"username":"system:serviceaccount:dormouse-system:b","extra":{"authentication.kubernetes.io/pod-name":["b-1"]}},"objectRef":{"resource":"deployments","namespace":"g","name":"x","apiGroup":"apps","apiVersion":"v1","subresource":"scale"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:06.000000Z","annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"cut sho`

func TestTheAuditLogIsReadFromAllItsFiles(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit", "audit.log")
	if _, err := Read(log, time.Time{}); err == nil {
		t.Error("a cluster without an audit log has no error")
	}
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		t.Fatal(err)
	}
	old := `{"verb":"get","requestURI":"/openid/v1/jwks","user":{"username":"o"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:04.000000Z"}` + "\n"
	for file, text := range map[string]string{"audit.log": auditLines, "audit-2026-01-02T03-04-05.000.log": old} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(log), file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 4, 0, time.UTC)
	all := []Entry{
		{User: "o", Verb: "get", Path: "/openid/v1/jwks", Code: 200, Received: at},
		{
			User: "system:serviceaccount:dormouse-system:a", Verb: "list", Path: "/api/v1/pods", Resource: "pods",
			Code: 403, Message: "no", Forbidden: true, Received: at.Add(time.Second),
		},
		{
			User: "system:serviceaccount:dormouse-system:b", Pod: "b-1", Verb: "update", Path: "/apis/apps/v1/namespaces/g/deployments/x/scale",
			Group: "apps", Resource: "deployments", Subresource: "scale", Namespace: "g", Name: "x", Code: 200, Received: at.Add(2 * time.Second),
		},
	}
	for since, want := range map[time.Time][]Entry{{}: all, at.Add(time.Second): all[1:], at.Add(time.Hour): {}} {
		got, err := Read(log, since)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("entries since %s (-want +got):\n%s", since, diff)
		}
	}
}
