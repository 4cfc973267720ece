package v1alpha1

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WakeOn is the moment at which a client counts as wanting the service.
// +kubebuilder:validation:Enum=Login;Connect;Never
type WakeOn string

const (
	// WakeOnLogin is when a client does what only players do, or sends a request that is no
	// probe.
	WakeOnLogin WakeOn = "Login"
	// WakeOnConnect is when a client connects or sends a datagram, whatever it wants.
	WakeOnConnect WakeOn = "Connect"
	// WakeOnNever is no moment: clients never wake the service.
	WakeOnNever WakeOn = "Never"
)

// Wake is what wakes a service.
//
// +kubebuilder:validation:XValidation:rule="!has(self.players) || !has(self.when) || self.when == 'Login'",message="players needs when: Login, because nobody says a name by connecting alone"
type Wake struct {
	// when is the moment at which a client counts as wanting the service. Login, the default,
	// needs a game's protocol or http: other ports wake with any connection or datagram. With
	// Connect so do those, and server lists and probes are answered by the server alone.
	//
	// With Never no client wakes it: a window of spec.awake does, the annotation
	// dormouse.dev/keep-awake-until, a GameAutoscaler, or whoever scales the target. While it
	// sleeps, server lists and probes are answered as with Login, and clients who want more are
	// refused as those who may not wake it are: Minecraft's players are told so, HTTP's clients
	// are answered 403, others are closed or dropped. While it wakes, whoever woke it, clients
	// wait for it as ever.
	// +optional
	// +kubebuilder:default=Login
	When WakeOn `json:"when,omitempty"`

	// allowCIDRs are the networks whose clients may wake the service, such as 203.0.113.0/24 or
	// 2001:db8::/32. By default all may. This and the next three are about clients for whom no
	// server is up: others are nobody's business here, so that this is no firewall. Clients who
	// may not wake the service are closed or dropped at once, unread, while it sleeps and
	// wakes; those of HTTP are answered 403.
	//
	// Rules that go by the client's address work only where the resolver sees it; the condition
	// SourceIPPreserved reports whether it does.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="allowCIDRs must be networks such as 203.0.113.0/24 or 2001:db8::/32"
	AllowCIDRs []string `json:"allowCIDRs,omitempty"`

	// denyCIDRs are the networks whose clients may not, even where allowCIDRs has them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="denyCIDRs must be networks such as 203.0.113.0/24 or 2001:db8::/32"
	DenyCIDRs []string `json:"denyCIDRs,omitempty"`

	// perSourceRate is how many clients of one source may ask for the service in a minute while
	// no server is up: TCP connections and UDP sessions that would wake it or wait for it, not
	// queries that are answered. They may come all at once. A source is an IPv4 address or an
	// IPv6 network of 64 bits, and each resolver pod counts by itself. By default there is no
	// such limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	PerSourceRate int32 `json:"perSourceRate,omitempty"`

	// perServiceRate is the same for clients of all sources together. It works wherever clients
	// come from. By default there is no such limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	PerServiceRate int32 `json:"perServiceRate,omitempty"`

	// players are those that may wake the service, on ports with the protocol minecraft, whose
	// clients say a name when they join. By default all may. Whoever may not sees the server
	// asleep, and is told so when it tries to join. Names are what clients say, and nobody
	// proves them before the server is up: this keeps a server asleep, and nobody out of it.
	// +optional
	Players *WakePlayers `json:"players,omitempty"`
}

// WakePlayers are the players that may wake a service.
//
// +kubebuilder:validation:XValidation:rule="has(self.allow) || has(self.deny) || has(self.allowFrom) || has(self.denyFrom)",message="players needs allow, deny, allowFrom or denyFrom; remove it if all players may wake the service"
type WakePlayers struct {
	// allow are the names or UUIDs of the players who may wake the service; by default all may
	// who aren't in deny. A UUID has 32 hexadecimal digits, with or without dashes, and only
	// clients since Minecraft 1.19.3 say theirs.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Allow []Player `json:"allow,omitempty"`

	// deny are the names or UUIDs of those who may not, even where allow has them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Deny []Player `json:"deny,omitempty"`

	// allowFrom is a list of players who may wake the service, beside those in allow: a key of
	// a ConfigMap in the format of Minecraft's whitelist.json. It holds as soon as it changes;
	// a list that is gone or can't be read holds on as it was.
	// +optional
	AllowFrom *PlayerList `json:"allowFrom,omitempty"`

	// denyFrom is a list of players who may not, beside those in deny, in the format of
	// Minecraft's banned-players.json. A ban that has expired is none.
	// +optional
	DenyFrom *PlayerList `json:"denyFrom,omitempty"`

	// message is told to who tries to join and may not wake the service. By default it is that
	// the server is asleep and that they may not wake it up.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// Player is the name of a player, in upper or lower case, or a UUID.
// +kubebuilder:validation:MaxLength=36
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_]{1,16}$|^[0-9a-fA-F]{32}$|^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$')",message="a player must be a name of up to 16 letters, digits and underscores, or a UUID"
type Player string

// PlayerList is a list of players in a ConfigMap: JSON as the game itself writes it, of which
// uuid, name and expires are read.
type PlayerList struct {
	// configMap is the name of a ConfigMap in the ElasticService's namespace, which must have
	// the label dormouse.dev/player-list: "true".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigMap string `json:"configMap"`

	// key is the list's, such as whitelist.json.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// MaxListedPlayers bounds the names and UUIDs of a list, of which most players have both.
const MaxListedPlayers = 2048

// WakePlayersStatus are the players on the lists that an ElasticService names. Each is a
// PlayerDigest.
type WakePlayersStatus struct {
	// allow are those on the list allowFrom.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2048
	Allow []string `json:"allow,omitempty"`
	// deny are those on the list denyFrom.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2048
	Deny []string `json:"deny,omitempty"`
}

// PlayerDigest stands for the name or the UUID of a player where many are kept: the first 9
// bytes of the SHA-256 of it in lower case and without dashes, in base64 for URLs.
func PlayerDigest(who string) string {
	sum := sha256.Sum256([]byte(strings.ReplaceAll(strings.ToLower(who), "-", "")))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// KeptAwake is what keeps a service awake whether it is used or not.
type KeptAwake struct {
	// until is until when the service doesn't sleep by itself. Not set where another
	// ElasticService keeps it awake, which does so until it is asleep.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// by is what keeps it awake: a window such as awake[0], the annotation, or another
	// ElasticService.
	By string `json:"by"`
}

// TimeWindow is a window of time that recurs.
type TimeWindow struct {
	// cron is when a window opens: five fields, for minute, hour, day of the month, month and
	// day of the week, as in "0 18 * * FRI-SUN". A day must fit one of the two fields for days
	// where both are given.
	//
	// Where clocks are put forward, a window that would open in the hour that there isn't opens
	// when the clocks change. Where they are put back, one that opens in the hour that there is
	// twice opens both times.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-0-9*,/]+ [-0-9*,/]+ [-0-9*,/]+ [-0-9A-Za-z*,/]+ [-0-9A-Za-z*,/]+$')",message="cron must have five fields with one space between them, for minute, hour, day of the month, month and day of the week, such as 0 18 * * FRI-SUN"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^ ]+( [^ ]+){4}$') || self.matches('^([*]|0*([0-9]|[1-5][0-9])(-0*([0-9]|[1-5][0-9]))?)(/0*[1-9][0-9]?)?(,([*]|0*([0-9]|[1-5][0-9])(-0*([0-9]|[1-5][0-9]))?)(/0*[1-9][0-9]?)?)*( [^ ]+){4}$')",message="cron's field 1, the minute, must be * or numbers from 0 to 59, such as 0 or 5-20 or */15"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^ ]+( [^ ]+){4}$') || self.matches('^[^ ]+ ([*]|0*([0-9]|1[0-9]|2[0-3])(-0*([0-9]|1[0-9]|2[0-3]))?)(/0*[1-9][0-9]?)?(,([*]|0*([0-9]|1[0-9]|2[0-3])(-0*([0-9]|1[0-9]|2[0-3]))?)(/0*[1-9][0-9]?)?)*( [^ ]+){3}$')",message="cron's field 2, the hour, must be * or numbers from 0 to 23, such as 18 or 8-20 or */2"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^ ]+( [^ ]+){4}$') || self.matches('^[^ ]+ [^ ]+ ([*]|0*([1-9]|[12][0-9]|3[01])(-0*([1-9]|[12][0-9]|3[01]))?)(/0*[1-9][0-9]?)?(,([*]|0*([1-9]|[12][0-9]|3[01])(-0*([1-9]|[12][0-9]|3[01]))?)(/0*[1-9][0-9]?)?)*( [^ ]+){2}$')",message="cron's field 3, the day of the month, must be * or numbers from 1 to 31, such as 1 or 1-7 or */2"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^ ]+( [^ ]+){4}$') || self.matches('^[^ ]+ [^ ]+ [^ ]+ ([*]|(0*([1-9]|1[0-2])|(?i:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))(-(0*([1-9]|1[0-2])|(?i:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)))?)(/0*[1-9][0-9]?)?(,([*]|(0*([1-9]|1[0-2])|(?i:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))(-(0*([1-9]|1[0-2])|(?i:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)))?)(/0*[1-9][0-9]?)?)*( [^ ]+){1}$')",message="cron's field 4, the month, must be * or numbers from 1 to 12 or names from JAN to DEC, such as JUN-AUG"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^ ]+( [^ ]+){4}$') || self.matches('^[^ ]+ [^ ]+ [^ ]+ [^ ]+ ([*]|(0*[0-7]|(?i:SUN|MON|TUE|WED|THU|FRI|SAT))(-(0*[0-7]|(?i:SUN|MON|TUE|WED|THU|FRI|SAT)))?)(/0*[1-9][0-9]?)?(,([*]|(0*[0-7]|(?i:SUN|MON|TUE|WED|THU|FRI|SAT))(-(0*[0-7]|(?i:SUN|MON|TUE|WED|THU|FRI|SAT)))?)(/0*[1-9][0-9]?)?)*$')",message="cron's field 5, the day of the week, must be * or numbers from 0 to 7, where 0 and 7 are Sunday, or names from SUN to SAT, such as MON-FRI"
	Cron string `json:"cron"`

	// timeZone is whose clocks cron goes by: a name of the IANA database such as Europe/Berlin;
	// by default UTC.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][-+A-Za-z0-9_]*(/[A-Za-z0-9][-+A-Za-z0-9_]*)*$') && self != 'Local' && timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0",message="timeZone must be a name of the IANA database such as Europe/Berlin or UTC"
	TimeZone string `json:"timeZone,omitempty"`

	// duration is how long a window stays open, in hours that pass, whatever clocks show; from
	// 1m to 168h.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration must be a duration from 1m to 168h such as 90m or 5h"
	Duration metav1.Duration `json:"duration"`
}
