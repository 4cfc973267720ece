package v1alpha1

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
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
