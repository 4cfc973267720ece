package gameserver

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/operator/internal/gameserver/slowstart"
)

// maxEvents bounds how many events of a Pod are read.
const maxEvents = 20

// observeEvents reads the events of a Pod whose containers haven't been made for a minute: only
// they tell of a volume that can't be mounted.
func (r *Reconciler) observeEvents(ctx context.Context, pod *corev1.Pod) []corev1.Event {
	if !slowstart.OnlyEventsTell(r.Now(), pod) {
		return nil
	}
	var list corev1.EventList
	err := r.Live.List(ctx, &list, client.InNamespace(pod.Namespace), client.Limit(maxEvents),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID))})
	if err != nil {
		return nil // it is looked at again in a minute
	}
	return list.Items
}

// UsualBoot is how long the Servers of a GameType or a Fleet usually take from their container's
// start until they are Ready, as this process has seen it; 0: not known.
func (r *Reconciler) UsualBoot(kind, namespace, name string) time.Duration {
	return r.boots.OfOwner(kind, namespace, name)
}
