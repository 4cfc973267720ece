// Package eviction answers the API server before it lets a Pod of a Server be evicted. The
// PodDisruptionBudget goes by a label, which follows a player's arrival by a report and two
// writes, and a probe's period before that. So the sidecar of a Pod that the budget would let go
// is asked to look now.
//
// Where nobody can say anything in time the eviction is left to the budget: a drain must not hang
// on an operator that is away.
package eviction

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/valyala/fasthttp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/metrics"
)

// Path is where the API server asks (POST).
const Path = "/evict"

// Looker has the sidecar of a Server's Pod look anew whether the Server may be deleted.
type Looker interface {
	LookPatiently(ctx context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked
}

// Handler answers.
type Handler struct {
	// Cached has the Pods of Servers, and the Servers.
	Cached client.Reader
	Looker Looker
	// Metrics counts; nil: nothing is counted.
	Metrics *metrics.Evictions
}

// Register registers the endpoint with a server.
func (h *Handler) Register(s *httpserver.Server) {
	s.Handle(fasthttp.MethodPost, Path, h.serve)
}

func (h *Handler) serve(rc *fasthttp.RequestCtx) {
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(rc.PostBody(), review); err != nil || review.Request == nil {
		httpserver.Error(&rc.Response, http.StatusBadRequest, "the body must be an AdmissionReview of admission.k8s.io/v1 with a request")
		return
	}
	response := h.review(context.Background(), review.Request)
	response.UID = review.Request.UID
	review.Request, review.Response = nil, response
	httpserver.JSON(&rc.Response, http.StatusOK, review)
}

// review decides on one eviction. The caller's own bounds of time apply to the look.
func (h *Handler) review(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	key := types.NamespacedName{Namespace: request.Namespace, Name: request.Name}
	pod, server := &corev1.Pod{}, &v1alpha1.Server{}
	if h.Cached.Get(ctx, key, pod, client.UnsafeDisableDeepCopy) != nil ||
		h.Cached.Get(ctx, key, server, client.UnsafeDisableDeepCopy) != nil || !metav1.IsControlledBy(pod, server) {
		return allowed // it is no Server's
	}
	if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
		return allowed // nobody plays on it
	}
	if pod.Labels[wellknown.DeletionAllowedLabel] == "false" {
		// So does the budget, where the namespace has one: a quota or a policy may refuse it.
		h.Metrics.Reviewed(metrics.EvictionDenied)
		return denied(server.Name, inUse(reported(server)))
	}
	allocation := h.allocatedTo(ctx, server, pod.UID)
	var looked reportapi.Looked
	if allocation == "" {
		looked = h.Looker.LookPatiently(ctx, server, pod.UID)
		// That takes seconds where the sidecar is on its way to another replica: somebody may have got it.
		allocation = h.allocatedTo(ctx, server, pod.UID)
	}
	switch {
	case allocation != "":
		h.Metrics.Reviewed(metrics.EvictionDenied)
		return denied(server.Name, "Allocation "+allocation+" has it")
	case !looked.Replied:
		h.Metrics.Reviewed(metrics.EvictionUnanswered)
		allowed.Warnings = []string{fmt.Sprintf("the sidecar of Server %s didn't say in time whether anybody plays", server.Name)}
		return allowed
	case looked.DeletionAllowed:
		h.Metrics.Reviewed(metrics.EvictionAllowed)
		return allowed
	}
	h.Metrics.Reviewed(metrics.EvictionDenied)
	return denied(server.Name, inUse(looked.Players))
}

// reported is how many play on a Server as far as it is known.
func reported(server *v1alpha1.Server) int32 {
	if server.Status.Players == nil {
		return 0
	}
	return server.Status.Players.Current
}

func inUse(players int32) string {
	if players > 0 {
		return fmt.Sprintf("%d play on it", players)
	}
	return "it is in use"
}

// denied is the status that a budget's refusal has, too, so that whoever evicts tries again.
func denied(server, why string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
		Message: fmt.Sprintf("Server %s may not be deleted now: %s", server, why),
	}}
}

// allocatedTo is the name of an Allocation that has a Server; empty: none has. The Pod's label says so
// two writes later.
func (h *Handler) allocatedTo(ctx context.Context, server *v1alpha1.Server, pod types.UID) string {
	if g := server.Status.Game; g != nil && (g.State == v1alpha1.GameShutdown || g.State == v1alpha1.GameUnhealthy) {
		return "" // it goes whoever has it
	}
	allocations, err := index.AllocationsOf(ctx, h.Cached, server)
	if err != nil {
		return "" // the sidecar may still object
	}
	for i := range allocations {
		// That of an earlier Pod is about to be Expired.
		if of := allocations[i].Status.PodUID; of == "" || of == string(pod) {
			return allocations[i].Name
		}
	}
	return ""
}
