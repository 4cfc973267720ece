package sim

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Policy is one way to run the game.
type Policy struct {
	// Name is short, and Means says it in a sentence.
	Name, Means string
	// alwaysOn has it never sleep.
	alwaysOn bool
	// policies are those of the GameAutoscaler; with none there is none, and a wake brings as
	// many Servers as the peak needs.
	policies []v1alpha1.AutoscalerPolicy
}

// The names that the goal is about.
const (
	nameAlwaysOn, nameSleep, nameActivePlayers, nameForecast = "always-on", "sleep", "activePlayers", "forecast"
)

// spare is how many players more the buffer keeps room for: half a Server.
const spare = 10

// Policies are all that are compared. All but the first sleep. Schedule and forecast stand beside
// activePlayers, as they are meant to: they say when players usually come, and it meets those who
// come besides.
func Policies() []Policy {
	slots := intstr.FromInt32(spare)
	active := v1alpha1.AutoscalerPolicy{Name: "load", ActivePlayers: &v1alpha1.ActivePlayersPolicy{}}
	buffer := v1alpha1.AutoscalerPolicy{Name: "room", Buffer: &v1alpha1.BufferPolicy{PlayerSlots: &slots}}
	forecast := v1alpha1.AutoscalerPolicy{Name: "usual", Forecast: &v1alpha1.ForecastPolicy{Wake: true, TimeZone: Zone}}
	window := func(name, cron string, length time.Duration, replicas int32) v1alpha1.AutoscalerPolicy {
		return v1alpha1.AutoscalerPolicy{Name: name, Schedule: &v1alpha1.SchedulePolicy{
			TimeWindow: v1alpha1.TimeWindow{Cron: cron, TimeZone: Zone, Duration: metav1.Duration{Duration: length}}, Replicas: replicas, Wake: true,
		}}
	}
	return []Policy{
		{Name: nameAlwaysOn, Means: "as many Servers as the highest peak needs, all the time", alwaysOn: true},
		{Name: nameSleep, Means: "as many, and asleep while nobody plays; no autoscaler"},
		{Name: nameActivePlayers, Means: "sleep, and a Server more where those there are over 80 % full", policies: []v1alpha1.AutoscalerPolicy{active}},
		{Name: "buffer", Means: "sleep, and room for 10 more players at all times while awake", policies: []v1alpha1.AutoscalerPolicy{buffer}},
		{Name: "schedule", Means: "activePlayers, and an owner's guess: 3 Servers from 16:30 to 23:30 on weekdays, 4 from 12:00 to 24:00 at weekends", policies: []v1alpha1.AutoscalerPolicy{
			active, window("weekdays", "30 16 * * MON-FRI", 7*time.Hour, 3), window("weekends", "0 12 * * SAT,SUN", 12*time.Hour, 4),
		}},
		{Name: "webhook", Means: "sleep, and a webhook that answers what buffer would; it fails for an evening", policies: []v1alpha1.AutoscalerPolicy{
			{Name: "ask", Webhook: &v1alpha1.WebhookPolicy{}},
		}},
		{Name: nameForecast, Means: "activePlayers, and a forecast that wakes", policies: []v1alpha1.AutoscalerPolicy{active, forecast}},
		{Name: "forecast+buffer", Means: "buffer, and a forecast that wakes", policies: []v1alpha1.AutoscalerPolicy{buffer, forecast}},
	}
}

// spec is that of the policy's GameAutoscaler.
func (p *Policy) spec(most int32) v1alpha1.GameAutoscalerSpec {
	return v1alpha1.GameAutoscalerSpec{MaxReplicas: most, Policies: p.policies}
}

// asks reports whether it asks a webhook.
func (p *Policy) asks() (name string, ok bool) {
	for i := range p.policies {
		if p.policies[i].Webhook != nil {
			return p.policies[i].Name, true
		}
	}
	return "", false
}
