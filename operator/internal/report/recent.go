package report

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/operator/internal/metrics"
)

// IndexOwner finds Servers in the cache by their Fleet and GameType, as Owners names them.
const IndexOwner = "dormouse.report.owner"

// Owners are the Server itself, first, and the Fleet and the GameType that it belongs to by its labels,
// as kind/name.
func Owners(o client.Object) []string {
	owners := []string{"Server/" + o.GetName()}
	for _, of := range []struct{ kind, label string }{{"Fleet", wellknown.FleetLabel}, {"GameType", wellknown.GameTypeLabel}} {
		if name := o.GetLabels()[of.label]; name != "" {
			owners = append(owners, of.kind+"/"+name)
		}
	}
	return owners
}

// Operators identifies the operator's Pods.
type Operators struct {
	// Account is the namespace and name of their service account.
	Account types.NamespacedName
	// Selector selects them in that namespace.
	Selector labels.Selector
}

// recentHandler answers other replicas with this one's recent reports.
type recentHandler struct {
	verifier  Verifier
	cached    client.Reader
	operators Operators
	table     *table
	metrics   *metrics.Reports
}

func (h *recentHandler) register(s *httpserver.Server) {
	s.Handle(fasthttp.MethodGet, reportapi.RecentPath, h.serve)
}

func (h *recentHandler) serve(rc *fasthttp.RequestCtx) {
	answer, refused := h.answer(rc)
	if refused == nil {
		httpserver.JSON(&rc.Response, fasthttp.StatusOK, answer)
	} else {
		answerRefusal(&rc.Response, refused)
	}
	h.metrics.AnsweredPeer(strconv.Itoa(rc.Response.StatusCode()))
}

func (h *recentHandler) answer(rc *fasthttp.RequestCtx) (*reportapi.Recent, *refusal) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	if refused := h.fromOperator(ctx, &rc.Request.Header); refused != nil {
		return nil, refused
	}
	namespace, owner := string(rc.QueryArgs().Peek(reportapi.NamespaceQuery)), string(rc.QueryArgs().Peek(reportapi.OwnerQuery))
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return nil, refuse(fasthttp.StatusBadRequest, "%s must be the name of a namespace: %s", reportapi.NamespaceQuery, problems[0])
	}
	kind, name, _ := strings.Cut(owner, "/")
	if problems := validation.IsDNS1123Subdomain(name); !slices.Contains([]string{"Server", "Fleet", "GameType"}, kind) || len(problems) > 0 {
		return nil, refuse(fasthttp.StatusBadRequest, "%s must be a Fleet or a GameType, such as Fleet/lobbies", reportapi.OwnerQuery)
	}
	servers, err := ServersOf(ctx, h.cached, namespace, owner)
	if err != nil {
		return nil, refuse(fasthttp.StatusServiceUnavailable, "the cache of Servers can't be read yet: try again")
	}
	return &reportapi.Recent{Servers: h.table.recentOf(time.Now(), servers)}, nil
}

// fromOperator refuses a request that isn't from a live Pod of the operator.
func (h *recentHandler) fromOperator(ctx context.Context, header *fasthttp.RequestHeader) *refusal {
	id, refused := identify(ctx, h.verifier, header)
	if refused != nil {
		return refused
	}
	if id.Namespace != h.operators.Account.Namespace || id.ServiceAccount != h.operators.Account.Name {
		return refuse(fasthttp.StatusUnauthorized, "the token is of service account %s: only that of the operator, %s, may ask", id.Account(), h.operators.Account)
	}
	pod := &corev1.Pod{}
	if refused := livePod(ctx, h.cached, id, pod); refused != nil {
		return refused
	}
	if !h.operators.Selector.Matches(labels.Set(pod.Labels)) {
		return refuse(fasthttp.StatusUnauthorized, "Pod %s is not one of the operator's", pod.Name)
	}
	return nil
}

// recentOf are the Servers' last reports that still count.
func (t *table) recentOf(now time.Time, servers []v1alpha1.Server) []reportapi.RecentReport {
	list := []reportapi.RecentReport{}
	for i := range servers {
		if r, ok := t.recent(now, servers[i].UID); ok {
			r.Name = servers[i].Name
			list = append(list, r)
		}
	}
	return list
}

// ServersOf lists the Servers of an owner, such as Fleet/lobbies, from a cache with IndexOwner.
// They are the cache's own and must not be changed.
func ServersOf(ctx context.Context, cached client.Reader, namespace, owner string) ([]v1alpha1.Server, error) {
	if name, alone := strings.CutPrefix(owner, "Server/"); alone {
		server := v1alpha1.Server{}
		err := cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &server, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read Server %s/%s: %w", namespace, name, err)
		}
		return []v1alpha1.Server{server}, nil
	}
	var list v1alpha1.ServerList
	err := cached.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{IndexOwner: owner}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the Servers of %s in namespace %s: %w", owner, namespace, err)
	}
	return list.Items, nil
}
