package report

import (
	"context"
	"sync"

	"github.com/valyala/fasthttp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/serviceauth"
)

// view is a caller's Server and Pod as the cache has them. They share the cache's memory, and must not be changed.
// Thousands of reports would leave a copy each.
type view struct {
	server v1alpha1.Server
	pod    corev1.Pod
	// gameType is empty where the Server has none.
	gameType v1alpha1.GameType
}

var views = sync.Pool{New: func() any { return new(view) }}

// free gives a view back, of which nobody may use anything any more.
func (v *view) free() {
	*v = view{}
	views.Put(v)
}

// see is the view of the Server that a caller reports for, if it may. The caller frees it.
func (h *Handler) see(ctx context.Context, id serviceauth.Identity, name string) (*view, *refusal) {
	v := views.Get().(*view) //nolint:forcetypeassert // there are no others
	if refused := v.read(ctx, h.cached, id, name); refused != nil {
		v.free()
		return nil, refused
	}
	return v, nil
}

// read reads the Server that a caller reports for and the caller's Pod, if it may report.
func (v *view) read(ctx context.Context, cached client.Reader, id serviceauth.Identity, name string) *refusal {
	pod, server := &v.pod, &v.server
	if refused := livePod(ctx, cached, id, pod); refused != nil {
		return refused
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	// Anybody who may create Pods may name an owner, but only one Pod has the name.
	if owner == nil || owner.Kind != "Server" || groupOf(owner) != v1alpha1.GroupVersion.Group || owner.Name != pod.Name {
		return refuse(fasthttp.StatusForbidden, "Pod %s/%s is not a Server's: only the Pod of a Server may report", pod.Namespace, pod.Name)
	}
	if owner.Name != name {
		return refuse(fasthttp.StatusForbidden, "the token is of the Pod of Server %s: it may report for no other", owner.Name)
	}
	err := cached.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, server, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return refuse(fasthttp.StatusNotFound, "there is no Server %s/%s", pod.Namespace, name)
	case err != nil:
		return refuse(fasthttp.StatusServiceUnavailable, "the cache of Servers can't be read yet: try again")
	case server.UID != owner.UID:
		return refuse(fasthttp.StatusForbidden, "the token is of the Pod of an earlier Server named %s", name)
	}
	// One that isn't there yet changes the answer later.
	if of := server.Labels[wellknown.GameTypeLabel]; of != "" && cached.Get(ctx, types.NamespacedName{Namespace: server.Namespace, Name: of}, &v.gameType, client.UnsafeDisableDeepCopy) != nil {
		v.gameType = v1alpha1.GameType{}
	}
	return nil
}

// livePod reads the Pod that a token is bound to, if it is still alive.
func livePod(ctx context.Context, cached client.Reader, id serviceauth.Identity, pod *corev1.Pod) *refusal {
	if id.PodName == "" {
		return refuse(fasthttp.StatusUnauthorized, "the token is bound to no Pod")
	}
	err := cached.Get(ctx, types.NamespacedName{Namespace: id.Namespace, Name: id.PodName}, pod, client.UnsafeDisableDeepCopy)
	if err != nil && !apierrors.IsNotFound(err) {
		return refuse(fasthttp.StatusServiceUnavailable, "the cache of Pods can't be read yet: try again")
	}
	if err != nil || string(pod.UID) != id.PodUID || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return refuse(fasthttp.StatusUnauthorized, "the token is of a Pod that is gone, or isn't known yet")
	}
	// A key that was stolen is good for no Pod that began with another.
	if id.ReportKey != "" && pod.Annotations[wellknown.ReportKeyAnnotation] != id.ReportKey {
		return refuse(fasthttp.StatusUnauthorized, "the token is signed with a key that Pod %s/%s didn't begin with, by its annotation %s", pod.Namespace, pod.Name, wellknown.ReportKeyAnnotation)
	}
	return nil
}

func groupOf(owner *metav1.OwnerReference) string {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return ""
	}
	return gv.Group
}
