package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// AutoscalerPolicy wishes a number of Servers.
//
// +kubebuilder:validation:XValidation:rule="[has(self.webhook), has(self.activePlayers), has(self.buffer), has(self.schedule), has(self.forecast)].filter(x, x).size() == 1",message="a policy needs exactly one of webhook, activePlayers, buffer, schedule and forecast; add the missing one, or make each a policy of its own"
type AutoscalerPolicy struct {
	// name tells the policies apart, in the status and in events: lower case letters, digits and
	// '-', at most 63.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="name must be lower case letters, digits and '-'"
	Name string `json:"name"`

	// webhook asks a server of yours.
	// +optional
	Webhook *WebhookPolicy `json:"webhook,omitempty"`

	// activePlayers goes by how full the Servers are.
	// +optional
	ActivePlayers *ActivePlayersPolicy `json:"activePlayers,omitempty"`

	// buffer keeps room for players who come.
	// +optional
	Buffer *BufferPolicy `json:"buffer,omitempty"`

	// schedule wishes a number of Servers at certain times.
	// +optional
	Schedule *SchedulePolicy `json:"schedule,omitempty"`

	// forecast goes by when players came in the last weeks.
	// +optional
	Forecast *ForecastPolicy `json:"forecast,omitempty"`
}

// WebhookPolicy asks a server of yours how many Servers there are to be. An answer that is late,
// malformed or no 200 changes nothing, and redirects are not followed. Where it may be is the
// administrator's to allow; by default that is Services of the cluster.
//
// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.service)",message="a webhook needs either url or service; add the missing one, or remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.caBundle) || !has(self.url) || self.url.startsWith('https://')",message="caBundle needs a url that starts with https://; correct the url, or remove caBundle"
type WebhookPolicy struct {
	// url is where the server is: http or https, without a user, at most 2048 characters. The
	// administrator must have allowed its address.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[][A-Za-z0-9.:-]+(/([!$&-;=-~]|%[0-9A-Fa-f]{2})*)?$') && isURL(self)",message="url must be an http or https URL without a user or a '#', such as https://scaler.games.svc:8443/scale"
	URL *string `json:"url,omitempty"`

	// service is a Service of the cluster. It is asked over HTTPS where there is a caBundle, and
	// else over HTTP.
	// +optional
	Service *WebhookService `json:"service,omitempty"`

	// caBundle is one or more certificates in PEM, in base64, that the server's own must be
	// signed by; at most 64 KiB of base64. By default those count that the operator's system
	// trusts.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle []byte `json:"caBundle,omitempty"`

	// timeout is how long the server may take for the whole answer; from 100ms to 30s, by
	// default 5s.
	// +optional
	// +kubebuilder:default="5s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('30s')",message="timeout must be a duration from 100ms to 30s such as 2s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// format is what is asked and answered. Dormouse, the default: a POST of game_name,
	// namespace, current_replicas, ready_replicas, players and capacity, answered with scale and
	// desired_replicas. Agones: a FleetAutoscaleReview as Agones sends it.
	// +optional
	// +kubebuilder:default=Dormouse
	Format WebhookFormat `json:"format,omitempty"`
}

// WebhookService is a Service that a webhook is behind.
type WebhookService struct {
	// name is the Service's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="name must be the name of a Service: lower case letters, digits and '-', starting with a letter"
	Name string `json:"name"`

	// namespace is the Service's; by default the GameAutoscaler's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="namespace must be a namespace's name: lower case letters, digits and '-'"
	Namespace string `json:"namespace,omitempty"`

	// port is the Service's port, by number.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// path is the path and query to ask; by default /scale.
	// +optional
	// +kubebuilder:default="/scale"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^/([!$&-~]|%[0-9A-Fa-f]{2})*$')",message="path must start with '/' and have no spaces, quotes or '#', and '%' only before two hexadecimal digits"
	Path string `json:"path,omitempty"`
}

// WebhookFormat is what a webhook is asked and answers.
// +kubebuilder:validation:Enum=Dormouse;Agones
type WebhookFormat string

const (
	// WebhookDormouse is a flat object of numbers.
	WebhookDormouse WebhookFormat = "Dormouse"
	// WebhookAgones is the FleetAutoscaleReview of Agones.
	WebhookAgones WebhookFormat = "Agones"
)

// ActivePlayersPolicy goes by the load: how many play, in percent of how many could. It wishes a
// step more or less than there is, once all Servers are Ready and the cooldown is over, and else
// what there is. In an update it wishes no fewer.
//
// +kubebuilder:validation:XValidation:rule="!has(self.scaleInBelowPercent) || !has(self.scaleOutAbovePercent) || self.scaleInBelowPercent < self.scaleOutAbovePercent",message="scaleInBelowPercent must be below scaleOutAbovePercent; lower it, or raise scaleOutAbovePercent"
type ActivePlayersPolicy struct {
	// scaleOutAbovePercent is the load above which it wishes more Servers; from 1 to 100, by
	// default 80.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	ScaleOutAbovePercent *int32 `json:"scaleOutAbovePercent,omitempty"`

	// scaleInBelowPercent is the load below which it wishes fewer Servers, though never so few
	// that the load would be above scaleOutAbovePercent; from 0, which is never, to 99, by
	// default 30.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=99
	ScaleInBelowPercent *int32 `json:"scaleInBelowPercent,omitempty"`

	// maxPlayersPerServer is how many players a Server counts as full with; from 1 to 1000000.
	// By default the capacities that the Servers report count.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxPlayersPerServer *int32 `json:"maxPlayersPerServer,omitempty"`

	// step is how many Servers more or fewer it wishes at a time; from 1, the default, to 1000.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Step *int32 `json:"step,omitempty"`

	// from is when it begins. Start, the default: as soon as the target is awake. FirstPlayer:
	// once anybody has played since the target woke, so that what a wake brings stays until
	// then.
	// +optional
	// +kubebuilder:default=Start
	From ActivePlayersFrom `json:"from,omitempty"`
}

// ActivePlayersFrom is when an ActivePlayersPolicy begins.
// +kubebuilder:validation:Enum=Start;FirstPlayer
type ActivePlayersFrom string

const (
	// ActivePlayersFromStart begins as soon as the target is awake.
	ActivePlayersFromStart ActivePlayersFrom = "Start"
	// ActivePlayersFromFirstPlayer begins once anybody has played.
	ActivePlayersFromFirstPlayer ActivePlayersFrom = "FirstPlayer"
)

// BufferPolicy keeps room for players who come: Servers on which nobody plays, or free player
// slots.
//
// +kubebuilder:validation:XValidation:rule="has(self.servers) != has(self.playerSlots)",message="a buffer needs either servers or playerSlots; add the missing one, or make each a policy of its own"
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",message="the buffer's minReplicas must not be above its maxReplicas; lower it, or raise maxReplicas"
type BufferPolicy struct {
	// servers is how many Ready Servers there are to be on which nobody plays, and that are
	// neither Allocated nor Reserved: a number from 1 to 10000, or a percentage of all the
	// Servers that it wishes, from 1% to 99%, rounded up. Servers that start count in.
	// +optional
	// +kubebuilder:validation:MaxLength=3
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^[1-9][0-9]?%$') : self >= 1 && self <= 10000",message="servers must be a number from 1 to 10000, or a percentage from 1% to 99% such as 20%"
	Servers *intstr.IntOrString `json:"servers,omitempty"`

	// playerSlots is how many more players there is to be room for: a number from 1 to 10000000,
	// or a percentage of all the capacity that it wishes, from 1% to 99%. The number of Servers
	// that gives it is rounded up; each counts as having the mean capacity of those that are
	// Ready.
	// +optional
	// +kubebuilder:validation:MaxLength=3
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^[1-9][0-9]?%$') : self >= 1 && self <= 10000000",message="playerSlots must be a number from 1 to 10000000, or a percentage from 1% to 99% such as 20%"
	PlayerSlots *intstr.IntOrString `json:"playerSlots,omitempty"`

	// minReplicas is the least that this policy wishes; from 0 to 10000. By default it has no
	// least of its own.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the most that this policy wishes; from 1 to 10000. By default it has no most
	// of its own.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// scaleDownDelay is for how long fewer Servers must have been enough before this policy
	// wishes fewer: its highest wish within that time counts. It is at most 24h, by default 0s:
	// at once. The stabilizationWindow of behavior.scaleDown comes on top.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) <= duration('24h')",message="scaleDownDelay must be a duration up to 24h such as 10m, or 0s for none"
	ScaleDownDelay *metav1.Duration `json:"scaleDownDelay,omitempty"`
}

// SchedulePolicy wishes a number of Servers while a window is open, and nothing else. Windows
// that overlap are one.
type SchedulePolicy struct {
	TimeWindow `json:",inline"`

	// replicas is how many Servers it wishes while a window is open; from 1 to 10000.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Replicas int32 `json:"replicas"`

	// wake lets an open window wake the target, and keeps the target awake until it closes. By
	// default it leaves a target asleep.
	// +optional
	Wake bool `json:"wake,omitempty"`
}

// ForecastPolicy wishes Servers ahead of the hours of the week in which players usually come. It
// remembers the most players of each hour of the last six weeks. Its message in the status tells
// what it expects, and how often it was right.
type ForecastPolicy struct {
	// wake lets it wake the target ahead of an hour in which players are expected, and keeps the
	// target awake through that hour. By default it only adds Servers to a target that is awake.
	// +optional
	Wake bool `json:"wake,omitempty"`

	// lead is how long before such an hour it begins to wish; at most 1h. By default it is twice
	// as long as Servers usually take to get Ready, from 1m to 30m, and 5m where that isn't known
	// yet.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) <= duration('1h')",message="lead must be a duration up to 1h such as 10m"
	Lead *metav1.Duration `json:"lead,omitempty"`

	// percentile is which of the weeks counts: in so many percent of them there were at most as
	// many players in that hour. From 1 to 100, by default 80.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percentile *int32 `json:"percentile,omitempty"`

	// minConfidencePercent is in how many of the weeks, in percent, anybody must have played in
	// that hour for players to be expected. From 1 to 100, by default 50. A higher one lets the
	// game sleep for longer, and more players wait for it to wake.
	// +optional
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MinConfidencePercent *int32 `json:"minConfidencePercent,omitempty"`

	// minWeeks is of how many weeks that hour must be remembered for players to be expected.
	// From 1 to 6, by default 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=6
	MinWeeks *int32 `json:"minWeeks,omitempty"`

	// timeZone is whose clocks the hours go by, since players do: a name of the IANA database
	// such as Europe/Berlin; by default UTC. A change moves what is remembered to other hours.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][-+A-Za-z0-9_]*(/[A-Za-z0-9][-+A-Za-z0-9_]*)*$') && self != 'Local'",message="timeZone must be a name of the IANA database such as Europe/Berlin or UTC"
	TimeZone string `json:"timeZone,omitempty"`
}
