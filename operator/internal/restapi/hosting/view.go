package hosting

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/maintenance"
)

// States of a server beyond those of a Server.
const (
	// Asleep: it has no Pod, and a player wakes it.
	Asleep = "Asleep"
	// Waking: it was asleep, and its game isn't up yet.
	Waking = "Waking"
	// Deleting: it goes once its players are gone.
	Deleting = "Deleting"
)

// States are all states that a server can have.
var States = []string{
	string(v1alpha1.ServerPending), string(v1alpha1.ServerStarting), string(v1alpha1.ServerReady), string(v1alpha1.ServerAllocated),
	string(v1alpha1.ServerReserved), string(v1alpha1.ServerDraining), string(v1alpha1.ServerStopped), string(v1alpha1.ServerUnhealthy),
	Asleep, Waking, Deleting,
}

// Players are how many play on a server.
type Players struct {
	Current  int32    `json:"current" doc:"How many play." minimum:"0"`
	Capacity int32    `json:"capacity" doc:"How many may play at once; 0 if that isn't known." minimum:"0"`
	IDs      []string `json:"ids,omitempty" doc:"The players' names or numbers, where the game reports them."`
}

// Wake is where the time of a server's last wake went.
type Wake struct {
	Asked      time.Time `json:"asked" doc:"When the first player asked."`
	Took       float64   `json:"took_seconds" doc:"How long it took until players got in, in seconds."`
	Scheduled  float64   `json:"scheduled_seconds,omitempty" doc:"Of that, until the pod had a node."`
	Started    float64   `json:"started_seconds,omitempty" doc:"From there until the game's container was started."`
	Up         float64   `json:"up_seconds" doc:"From there until the game was up."`
	HandedOver float64   `json:"handed_over_seconds,omitempty" doc:"From there until players went straight to it."`
	Message    string    `json:"message" doc:"All that in a sentence."`
}

// Server is a server as its callers see it.
type Server struct {
	ID          int64            `json:"id" doc:"The server's number." minimum:"1"`
	Name        string           `json:"name" doc:"The name of its objects in Kubernetes."`
	Game        string           `json:"game" doc:"The game that it was made from."`
	State       string           `json:"state" doc:"Pending, Starting, Ready, Allocated, Reserved, Draining, Stopped, Unhealthy, Asleep, Waking or Deleting; empty for a moment after it was made."`
	Message     string           `json:"message,omitempty" doc:"Why it isn't ready, in a sentence."`
	Running     bool             `json:"running" doc:"False once somebody has stopped it, until somebody starts it."`
	Asleep      bool             `json:"asleep" doc:"Whether it sleeps: it has no pod, and a player wakes it."`
	AsleepSince *time.Time       `json:"asleep_since,omitempty" doc:"Since when it sleeps."`
	Players     Players          `json:"players"`
	RAM         int64            `json:"ram_gb" doc:"Memory, in GiB."`
	Disk        int64            `json:"disk_gb" doc:"Disk, in GiB."`
	Address     string           `json:"address,omitempty" doc:"Where players reach it: a host name or an IP address; absent until it has one outside the cluster."`
	Ports       map[string]int32 `json:"ports" doc:"The numbers by which its ports are reached at address, by name, of those that have one. Where address is a name at a front, only primary and the game's port are there: rcon and sftp are at a node's address."`
	MoneySaved  string           `json:"money_saved,omitempty" doc:"What its sleeps have saved, where the administrator has set prices."`
	AsleepFor   int64            `json:"asleep_seconds" doc:"How long it has slept in all, in seconds, without the sleep that it is in."`
	KeptAwake   *time.Time       `json:"kept_awake_until,omitempty" doc:"Until when it doesn't sleep, because somebody asked for that."`
	LastWake    *Wake            `json:"last_wake,omitempty"`
	CreatedAt   time.Time        `json:"created_at" doc:"When it was made."`
}

// view is what a server's objects say of it now. The ElasticService and the Service are nil where they
// aren't there yet.
func view(s *v1alpha1.Server, es *v1alpha1.ElasticService, svc *corev1.Service, now time.Time) Server {
	id, _ := ID(s.Name)
	want := wantOf(s)
	v := Server{
		ID: id, Name: s.Name, Game: want.Game, RAM: want.RAM, Disk: want.Disk,
		Running: runs(s), State: string(s.Status.State), CreatedAt: s.CreationTimestamp.Time, Ports: map[string]int32{},
	}
	if p := s.Status.Players; p != nil {
		v.Players = Players{Current: p.Current, Capacity: p.Capacity, IDs: p.IDs}
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, conditions.Ready); c != nil && c.Status != metav1.ConditionTrue {
		v.Message = c.Message
	}
	if es != nil {
		fromElasticService(&v, &es.Status)
		if until, err := maintenance.ParseTime(es.Annotations, wellknown.KeepAwakeUntilAnnotation); err == nil && until.After(now) {
			v.KeptAwake = &until
		}
	}
	if svc != nil {
		fromService(&v, s, svc)
	}
	if !s.DeletionTimestamp.IsZero() {
		v.State = Deleting
	}
	return v
}

func fromElasticService(v *Server, es *v1alpha1.ElasticServiceStatus) {
	v.AsleepFor = es.AsleepSeconds
	if v.Running && es.Phase == v1alpha1.PhaseAsleep && v.State == string(v1alpha1.ServerStopped) {
		v.State, v.Asleep, v.Message = Asleep, true, ""
		if es.PhaseSince != nil {
			v.AsleepSince = &es.PhaseSince.Time
		}
	}
	if v.Running && es.Phase == v1alpha1.PhaseWaking && v.State != string(v1alpha1.ServerUnhealthy) {
		v.State = Waking
	}
	if w := es.LastWake; w != nil {
		v.LastWake = &Wake{
			Asked: w.Asked.Time, Took: w.Took.Seconds(), Scheduled: seconds(w.Scheduled), Started: seconds(w.Started),
			Up: w.Up.Seconds(), HandedOver: seconds(w.HandedOver), Message: w.Message,
		}
	}
}

func seconds(d *metav1.Duration) float64 {
	if d == nil {
		return 0
	}
	return d.Seconds()
}

func fromService(v *Server, s *v1alpha1.Server, svc *corev1.Service) {
	primary := shown(s, svc, Primary)
	for _, p := range svc.Spec.Ports {
		number := outside(svc, p)
		if svc.Spec.Type == corev1.ServiceTypeClusterIP || number == 0 {
			continue
		}
		v.Ports[p.Name] = number
		if primary != nil && primary.Name == p.Name {
			v.Ports[Primary] = number
		}
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		v.Address = cmp.Or(v.Address, in.Hostname, in.IP)
	}
}
