package disks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/wellknown"
)

// usersAtOnce is how many Pods that have a Server's disks are read at a time. There are a few, and many
// that have ended where nobody collects those.
const usersAtOnce = 100

const (
	// Drain is how long a user who is logged in may go on in a Pod that serves files when a copy has it end.
	Drain = time.Hour
	// UploadDrain is how long a file may be uploaded that was begun within Drain: the program lets it go
	// on for four times as long, while enough of it comes.
	UploadDrain = 4 * Drain
)

// Users are the Pods that have a Server's disks and haven't ended.
type Users struct {
	// Others are the names of those that are nobody's own, and Own those of whoever asks.
	Others, Own []string
	// Game is set where the game's own is among the others.
	Game bool
	// files are the others that serve files.
	files []*corev1.Pod
}

// First is one of the others; empty: there are none.
func (u *Users) First() string {
	if len(u.Others) == 0 {
		return ""
	}
	return u.Others[0]
}

// OnlyFiles reports whether all of the others serve files.
func (u *Users) OnlyFiles() bool { return len(u.files) > 0 && len(u.files) == len(u.Others) }

// UsersOf asks the API server itself which Pods have a Server's disks. own tells those of whoever asks.
// The game's Pod is looked for by its name, too: one that an earlier version made doesn't have the label.
// One that serves files and waits at its gate has no disk.
func UsersOf(ctx context.Context, live client.Reader, server types.NamespacedName, own func(*corev1.Pod) bool) (Users, error) {
	var u Users
	at := client.ListOptions{Namespace: server.Namespace, Limit: usersAtOnce}
	client.MatchingLabels{wellknown.DisksLabel: server.Name}.ApplyToList(&at)
	for {
		var pods corev1.PodList
		if err := live.List(ctx, &pods, &at); err != nil {
			return u, fmt.Errorf("list the Pods with the disks of Server %s: %w", server, err)
		}
		u.add(server, pods.Items, own)
		if at.Continue = pods.Continue; at.Continue == "" {
			break
		}
	}
	game := &corev1.Pod{}
	err := live.Get(ctx, server, game)
	if client.IgnoreNotFound(err) != nil {
		return u, fmt.Errorf("read Pod %s: %w", server, err)
	}
	by := metav1.GetControllerOfNoCopy(game)
	u.Game = err == nil && !Over(game) && (game.Labels[wellknown.ServerLabel] == server.Name || by != nil && by.Kind == "Server")
	if u.Game && !slices.Contains(u.Others, game.Name) {
		u.Others = append(u.Others, game.Name)
	}
	return u, nil
}

// add adds those Pods that haven't ended.
func (u *Users) add(server types.NamespacedName, pods []corev1.Pod, own func(*corev1.Pod) bool) {
	for i := range pods {
		pod := &pods[i]
		switch {
		case Over(pod) || Gated(pod):
			continue
		case own(pod):
			u.Own = append(u.Own, pod.Name)
			continue
		case pod.Labels[wellknown.FilesLabel] == server.Name:
			u.files = append(u.files, pod)
		}
		u.Others = append(u.Others, pod.Name)
	}
}

// OfJob tells the Pods of a Job.
func OfJob(name string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		by := metav1.GetControllerOfNoCopy(pod)
		return by != nil && by.Kind == "Job" && by.Name == name
	}
}

// Over reports whether a Pod has ended.
func Over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Gated reports whether a Pod waits at its gate until nobody copies the disks.
func Gated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == wellknown.FilesGate })
}

// Door is what a table of who has which disks knows of Pods that serve files.
type Door interface {
	// WaitForFiles notes that a copy waits for such Pods alone, and reports whether it has for long
	// enough: from then on no other one passes its gate before the copy has had its turn.
	WaitForFiles(server types.NamespacedName, now time.Time) (closed bool)
}

// MakeWay has a copy get its turn where nothing but Pods that serve files has the disks. Once the copy has
// waited for long enough they end: at once, unless a user is logged in, who may go on for an
// hour, and finish the file that is uploaded then.
func MakeWay(ctx context.Context, c client.Client, door Door, server types.NamespacedName, u *Users, now time.Time) error {
	if !u.OnlyFiles() || !door.WaitForFiles(server, now) {
		return nil
	}
	var errs []error
	for _, pod := range u.files {
		if !pod.DeletionTimestamp.IsZero() {
			continue
		}
		err := c.Delete(ctx, pod, client.GracePeriodSeconds(int64(UploadDrain/time.Second)), client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete Pod %s: %w", client.ObjectKeyFromObject(pod), err))
		}
	}
	return errors.Join(errs...)
}
