package reasons

// Reasons of a GameAutoscaler's conditions, beyond those of the other kinds.
const (
	// PoliciesEvaluated means that the policies decide about the target's replicas.
	PoliciesEvaluated = "PoliciesEvaluated"
	// TargetOwned means that the target belongs to a GameType, which sets its replicas.
	TargetOwned = "TargetOwned"
	// ScaledByOther means that a HorizontalPodAutoscaler, or what made it, sets the target's
	// replicas.
	ScaledByOther = "ScaledByOther"
	// ScaleRefused means that the API server refuses to change the target's replicas.
	ScaleRefused = "ScaleRefused"
	// TargetDeleted means that the target is being deleted.
	TargetDeleted = "TargetDeleted"
	// ReadyToScale means that nothing makes a change of replicas wait.
	ReadyToScale = "ReadyToScale"
	// ScaleUpStabilized means that the wish hasn't been higher for long enough.
	ScaleUpStabilized = "ScaleUpStabilized"
	// ScaleDownStabilized means that the wish hasn't been lower for long enough.
	ScaleDownStabilized = "ScaleDownStabilized"
	// CoolingDown means that replicas were changed a short while ago.
	CoolingDown = "CoolingDown"
	// ScaleDownHeld means that no Servers are taken away because a policy can't be evaluated,
	// reports are stale, or an update is under way.
	ScaleDownHeld = "ScaleDownHeld"
	// WithinBounds means that there are to be as many Servers as the policies wish.
	WithinBounds = "WithinBounds"
	// TooFewReplicas means that the wish is below minReplicas.
	TooFewReplicas = "TooFewReplicas"
	// TooManyReplicas means that the wish is above maxReplicas.
	TooManyReplicas = "TooManyReplicas"
	// StepLimited means that a maxStep bounds the change.
	StepLimited = "StepLimited"
)

// Reasons of a GameAutoscaler's policy.
const (
	// ReportsStale means that Servers in which a game runs have said nothing for some time.
	ReportsStale = "ReportsStale"
	// CapacityUnknown means that nothing tells how many players the Servers have room for.
	CapacityUnknown = "CapacityUnknown"
	// LoadHigh means that the load is above scaleOutAbovePercent.
	LoadHigh = "LoadHigh"
	// LoadLow means that the load is below scaleInBelowPercent.
	LoadLow = "LoadLow"
	// LoadNormal means that the load is in between, or that one Server fewer would be too few.
	LoadNormal = "LoadNormal"
	// ServersNotReady means that the policy waits for Servers to be Ready.
	ServersNotReady = "ServersNotReady"
	// WaitingForPlayers means that nobody has played since the target woke.
	WaitingForPlayers = "WaitingForPlayers"
	// BufferKept means that the wish is what the buffer asks for.
	BufferKept = "BufferKept"
	// BufferFloor means that the wish is the buffer's own minReplicas.
	BufferFloor = "BufferFloor"
	// BufferCeiling means that the wish is the buffer's own maxReplicas.
	BufferCeiling = "BufferCeiling"
	// BufferDelayed means that fewer Servers haven't been enough for scaleDownDelay.
	BufferDelayed = "BufferDelayed"
	// WindowOpen means that a window of the schedule is open.
	WindowOpen = "WindowOpen"
	// WindowClosed means that none is.
	WindowClosed = "WindowClosed"
	// ScheduleInvalid means that the cron of a schedule, or the timeZone of one or of a
	// forecast, can't be read.
	ScheduleInvalid = "ScheduleInvalid"
	// PlayersExpected means that players usually come at this time.
	PlayersExpected = "PlayersExpected"
	// NobodyExpected means that they don't.
	NobodyExpected = "NobodyExpected"
	// ForecastLearning means that too little is remembered yet to expect anything.
	ForecastLearning = "ForecastLearning"
	// WebhookAnswered means that the wish is the webhook's answer.
	WebhookAnswered = "WebhookAnswered"
	// WebhookKeeps means that the webhook answered that nothing is to be changed.
	WebhookKeeps = "WebhookKeeps"
	// WebhookNotAnswered means that the webhook hasn't answered yet.
	WebhookNotAnswered = "WebhookNotAnswered"
)
