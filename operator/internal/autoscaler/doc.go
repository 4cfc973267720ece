// Package autoscaler is about what sets a target's replicas while its service is awake, so that
// it and Dormouse don't fight over them: a HorizontalPodAutoscaler, or a ScaledObject of KEDA.
//
// A HorizontalPodAutoscaler rests by itself while its target is at zero. It is only read.
//
// A ScaledObject would scale a sleeping target up again, so it is paused from the beginning of
// each sleep to the wake. Of KEDA's annotations it is paused, and not paused-replicas: the latter
// has KEDA itself scale the target to its number, before the sleep is committed, and once more
// where KEDA is late and the target was woken meanwhile. One that is paused writes nothing at
// all, so that a wake needn't wait for the end of the pause.
//
// Whose pause it is says a second annotation beside it. Both are applied with a field manager of
// their own: a tool that applies the ScaledObject's manifest again doesn't touch them, and a
// pause that somebody else applies as well outlasts Dormouse's.
//
// The package reads HorizontalPodAutoscalers and ScaledObjects, and writes those two annotations.
// When they are written is decided by Seen.Want, which is a function of what was read.
package autoscaler
