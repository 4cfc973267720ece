package restapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

const two = `{"ram_gb":2,"disk_gb":10}`

// A server's life: made, started, its ports asked for, resized, stopped, deleted; each call twice, by
// one replica and by the other.
func TestAServersLife(t *testing.T) {
	w := newWorld(t)
	const path = "/api/v1/server/1"
	key := client.ObjectKey{Namespace: namespace, Name: "server-1"}
	objects := func() (*v1alpha1.Server, *v1alpha1.ElasticService, *corev1.Service) {
		s, es, svc := &v1alpha1.Server{}, &v1alpha1.ElasticService{}, &corev1.Service{}
		for _, o := range []client.Object{s, es, svc} {
			if err := w.admin.Get(t.Context(), key, o); err != nil {
				t.Fatal(err)
			}
		}
		return s, es, svc
	}
	both := func(method, path, body string, first, second int) reply {
		t.Helper()
		w.want(w.call(0, w.token, method, path, body), first)
		return w.want(w.call(1, w.token, method, path, body), second)
	}

	if r := both(http.MethodPost, path+"/", two, 201, 200); r.text != "{\"success\":true}\n" {
		t.Errorf("answered %q", r.text)
	}
	s, es, svc := objects()
	if memory := s.Spec.Template.Spec.Containers[0].Resources.Limits.Memory(); memory.String() != "2Gi" || s.Spec.Storage[0].Size.String() != "10Gi" {
		t.Errorf("it has %s of memory and a disk of %s", memory, s.Spec.Storage[0].Size.String())
	}
	if *s.Spec.Running || es.Annotations[wellknown.KeepAsleepUntilAnnotation] == "" {
		t.Error("it runs before somebody started it")
	}
	if svc.Spec.Type != corev1.ServiceTypeClusterIP || len(svc.Spec.Ports) != 1 || svc.Spec.Ports[0].Name != "game" {
		t.Errorf("its Service is of type %s with the ports %+v, want ClusterIP with game alone", svc.Spec.Type, svc.Spec.Ports)
	}
	if es.Spec.SleepAfter.Minutes() != 5 || len(es.Spec.Ports) != 1 || es.Spec.Ports[0].Asleep.MOTD != "zzz" {
		t.Errorf("its ElasticService doesn't do what the game's sleep says: %+v", es.Spec)
	}

	both(http.MethodPatch, path+"/start", "", 200, 200)
	if s, es, _ = objects(); !*s.Spec.Running || *s.Spec.Replicas != 1 || es.Annotations[wellknown.KeepAsleepUntilAnnotation] != "" {
		t.Error("it isn't started")
	}

	primary := both(http.MethodPatch, path+"/port/primary", "", 200, 200).body["port"]
	rcon := both(http.MethodPatch, path+"/port/rcon", "", 200, 200).body["port"]
	w.want(w.call(0, w.token, http.MethodPatch, path+"/port/sftp", ""), 404)
	both(http.MethodPatch, path+"/stop?force=true", "", 200, 200)
	if s, es, _ = objects(); *s.Spec.Running || *s.Spec.Replicas != 0 || !s.Spec.Deletion.Force || es.Annotations[wellknown.KeepAsleepUntilAnnotation] == "" {
		t.Error("it isn't stopped")
	}
	both(http.MethodPost, path+"/wake", "", 409, 409)
	both(http.MethodPost, path+"/keep-awake", `{"minutes":5}`, 409, 409)
	both(http.MethodPatch, path+"/start", "", 200, 200)
	if s, _, _ = objects(); s.Spec.Deletion.Force {
		t.Error("a later stop would not drain")
	}
	both(http.MethodPost, path+"/wake", "", 200, 200)
	both(http.MethodPost, path+"/keep-awake", `{"minutes":5}`, 200, 200)
	if _, es, svc = objects(); es.Annotations[wellknown.KeepAwakeUntilAnnotation] == "" {
		t.Error("it isn't kept awake")
	}
	have := map[string]any{}
	for _, p := range svc.Spec.Ports {
		have[p.Name] = float64(p.NodePort)
	}
	if diff := cmp.Diff(map[string]any{"game": primary, "rcon": rcon}, have); diff != "" {
		t.Errorf("the ports aren't those that were given out (-given +there):\n%s", diff)
	}

	both(http.MethodPatch, path, `{"ram_gb":4,"disk_gb":20}`, 200, 200)
	both(http.MethodPatch, path, `{"disk_gb":19}`, 409, 409)
	r := w.want(w.call(1, w.token, http.MethodGet, path+"/", ""), 200)
	got := r.body["server"].(map[string]any)
	delete(got, "created_at")
	if _, ok := got["kept_awake_until"].(string); !ok {
		t.Error("it isn't said until when it is kept awake")
	}
	delete(got, "kept_awake_until")
	if diff := cmp.Diff(map[string]any{
		"id": 1.0, "name": "server-1", "game": "minecraft", "state": "", "running": true, "asleep": false, "asleep_seconds": 0.0,
		"players": map[string]any{"current": 0.0, "capacity": 0.0}, "ram_gb": 4.0, "disk_gb": 20.0, "address": "play.example.com",
		"ports": map[string]any{"primary": primary, "game": primary, "rcon": rcon},
	}, got); diff != "" {
		t.Errorf("the server (-want +got):\n%s", diff)
	}
	both(http.MethodPost, path, two, 409, 409)

	w.want(w.call(0, w.token, http.MethodDelete, path+"?keep_disk=true", ""), 200)
	// The operator has never seen it, and is to see that its disk stays: until then its guard has it.
	if r := w.want(w.call(1, w.token, http.MethodGet, path, ""), 200); r.body["server"].(map[string]any)["state"] != "Deleting" {
		t.Errorf("a deleted server is answered with %v", r)
	}
	if s, _, _ = objects(); !slices.Equal(s.Finalizers, []string{wellknown.DeletionGuardFinalizer}) || s.Spec.Storage[0].OnDelete != v1alpha1.StorageRetain {
		t.Errorf("its finalizers are %v, and its disk: %s", s.Finalizers, s.Spec.Storage[0].OnDelete)
	}
	s.Finalizers = nil
	if err := w.admin.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.want(w.call(1, w.token, http.MethodGet, path, ""), 404)
	w.want(w.call(1, w.token, http.MethodDelete, path, ""), 404)
}

// What is wrong in a request is said by the field's name, and changes nothing.
func TestWhatIsWrongIsNamed(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code, field        string
	}{
		"an id that is no number":       {http.MethodPost, "/api/v1/server/x/", two, 400, "invalid", "path.id"},
		"an id of 0":                    {http.MethodPost, "/api/v1/server/0/", two, 400, "invalid", "path.id"},
		"a negative id":                 {http.MethodGet, "/api/v1/server/-1", "", 400, "invalid", "path.id"},
		"an id too large":               {http.MethodGet, "/api/v1/server/9007199254740992", "", 400, "invalid", "path.id"},
		"an id far too large":           {http.MethodGet, "/api/v1/server/99999999999999999999", "", 400, "invalid", "path.id"},
		"an unknown field":              {http.MethodPost, "/api/v1/server/90", `{"ram_gb":2,"disk_gb":1,"cpu":3}`, 400, "invalid", "body.cpu"},
		"a word for a number":           {http.MethodPost, "/api/v1/server/90", `{"ram_gb":"2","disk_gb":1}`, 400, "invalid", "body.ram_gb"},
		"a fraction":                    {http.MethodPost, "/api/v1/server/90", `{"ram_gb":1.5,"disk_gb":1}`, 400, "invalid", "body.ram_gb"},
		"no memory":                     {http.MethodPost, "/api/v1/server/90", `{"ram_gb":0,"disk_gb":1}`, 400, "invalid", "body.ram_gb"},
		"too much disk":                 {http.MethodPost, "/api/v1/server/90", `{"ram_gb":1,"disk_gb":65537}`, 400, "invalid", "body.disk_gb"},
		"a field that is missing":       {http.MethodPost, "/api/v1/server/90", `{"ram_gb":1}`, 400, "invalid", "body"},
		"an unknown game":               {http.MethodPost, "/api/v1/server/90", `{"ram_gb":1,"disk_gb":1,"game":"chess"}`, 400, "invalid", "body.game"},
		"a game that is no name":        {http.MethodPost, "/api/v1/server/90", `{"ram_gb":1,"disk_gb":1,"game":"../x"}`, 400, "invalid", "body.game"},
		"no JSON":                       {http.MethodPost, "/api/v1/server/90", `{"ram_gb":`, 400, "invalid", "body"},
		"no body":                       {http.MethodPost, "/api/v1/server/90", "", 400, "invalid", ""},
		"a list for a body":             {http.MethodPost, "/api/v1/server/90", `[]`, 400, "invalid", "body"},
		"an unknown role of a port":     {http.MethodPatch, "/api/v1/server/90/port/query", "", 400, "invalid", "path.port"},
		"an unknown parameter":          {http.MethodGet, "/api/v1/server?colour=red", "", 400, "invalid", "query.colour"},
		"a state that there isn't":      {http.MethodGet, "/api/v1/server?state=Happy", "", 400, "invalid", "query.state"},
		"a word for a truth":            {http.MethodPatch, "/api/v1/server/90/stop?force=maybe", "", 400, "invalid", "query.force"},
		"nothing to change":             {http.MethodPatch, "/api/v1/server/90", `{}`, 400, "invalid", "body"},
		"a server that isn't there":     {http.MethodPatch, "/api/v1/server/90/start", "", 404, "not_found", "path.id"},
		"a path that isn't there":       {http.MethodGet, "/api/v1/servers", "", 404, "not_found", ""},
		"a method that isn't there":     {http.MethodPut, "/api/v1/server/90", two, 405, "method_not_allowed", ""},
		"a body that is far too large":  {http.MethodPost, "/api/v1/server/90", fmt.Sprintf(`{"game":"%070000d"}`, 1), 413, "too_large", ""},
		"more memory than a server has": {http.MethodPatch, "/api/v1/server/90", `{"ram_gb":1025}`, 400, "invalid", "body.ram_gb"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.call(0, w.token, c.method, c.path, c.body)
			code, field, message := r.error()
			if r.status != c.status || code != c.code || field != c.field || message == "" || r.body["success"] != false {
				t.Errorf("answered %v, want %d with code %q and field %q", r, c.status, c.code, c.field)
			}
		})
	}
	var all v1alpha1.ServerList
	if err := w.admin.List(t.Context(), &all, client.InNamespace(namespace), client.MatchingFields{"metadata.name": "server-90"}); err != nil || len(all.Items) > 0 {
		t.Errorf("a request that was refused made %d servers (%v)", len(all.Items), err)
	}
}
