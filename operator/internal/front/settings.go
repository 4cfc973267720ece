package front

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/sourceip"
	"dormouse.dev/dormouse/operator/internal/text"
)

// Refresh updates the settings of the front's owner in a status that is otherwise kept as it
// is. A part of a front that the spec doesn't ask for any more, or that the Service's owner
// doesn't allow, isn't kept.
func Refresh(es *v1alpha1.ElasticService, svc *corev1.Service) {
	key, wanted := index.FrontOf(es)
	switch {
	case es.Status.Front == nil:
	case !wanted || !isFront(es.Status.Front, key), svc != nil && !MayShare(svc, es.Namespace):
		es.Status.Front = nil
	case svc != nil:
		status := es.Status.Front.DeepCopy()
		_ = setFront(status, es.Status.Front, svc)
		es.Status.Front = status
	}
}

// isFront reports whether a status is about a part of this Service; nil is about none.
func isFront(status *v1alpha1.FrontStatus, svc types.NamespacedName) bool {
	return status != nil && status.Namespace == svc.Namespace && status.Service == svc.Name
}

// setFront writes the settings of the Service's owner, which are annotations, into a front's
// status. One that can't be read changes nothing: the earlier setting, in before, stays.
func setFront(status, before *v1alpha1.FrontStatus, svc *corev1.Service) (ob *obstacle.Obstacle) {
	same := isFront(before, types.NamespacedName{Namespace: status.Namespace, Name: status.Service})
	if same {
		status.TrustedCIDRs, status.MaxSessionsPerSource = before.TrustedCIDRs, before.MaxSessionsPerSource
	}
	invalid := func(annotation, want string) {
		if ob == nil {
			ob = obstacle.New(reasons.AnnotationInvalid,
				"The annotation %s of Service %s is %s and must be %s. What it was before holds on.",
				annotation, svc.Name, text.Quoted(svc.Annotations[annotation]), want)
		}
	}
	if trusted, ok := networks(svc.Annotations[wellknown.TrustedCIDRsAnnotation]); ok {
		status.TrustedCIDRs = trusted
	} else {
		invalid(wellknown.TrustedCIDRsAnnotation, fmt.Sprintf(
			"up to %d networks such as 10.0.0.0/8 or 2001:db8::/32, with commas between them", v1alpha1.MaxTrustedCIDRs))
	}
	if most, ok := count(svc.Annotations[wellknown.MaxSessionsPerSourceAnnotation]); ok {
		status.MaxSessionsPerSource = most
	} else {
		invalid(wellknown.MaxSessionsPerSourceAnnotation, "a number from 1 to 1000000")
	}
	_, local := sourceip.LocalPolicy(svc)
	status.SourceIPPreserved = local || len(status.TrustedCIDRs) > 0
	status.SettingsVersion = svc.ResourceVersion
	if same && before.SettingsVersion != "" && slices.Equal(before.TrustedCIDRs, status.TrustedCIDRs) &&
		before.MaxSessionsPerSource == status.MaxSessionsPerSource && before.SourceIPPreserved == status.SourceIPPreserved {
		status.SettingsVersion = before.SettingsVersion
	}
	return ob
}

// Unseen explains which settings aren't applied to a front's clients because their addresses
// aren't known, and what to change; empty where no setting needs addresses.
func Unseen(es *v1alpha1.ElasticService, svc *corev1.Service) string {
	fields := sourceip.Rules(es)
	if es.Status.Front.MaxSessionsPerSource > 0 {
		fields = append(fields, wellknown.MaxSessionsPerSourceAnnotation)
	}
	if len(fields) == 0 || svc == nil {
		return ""
	}
	field, _ := sourceip.LocalPolicy(svc)
	return fmt.Sprintf(" The resolver may see a node's address instead of theirs, so that these aren't applied to them: %s. That takes %s: Local or the annotation %s on Service %s.",
		strings.Join(fields, ", "), field, wellknown.TrustedCIDRsAnnotation, svc.Name)
}

// networks parses networks separated by commas.
func networks(text string) (out []string, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		network, err := netip.ParsePrefix(part)
		if err != nil || len(out) == v1alpha1.MaxTrustedCIDRs {
			return nil, false
		}
		out = append(out, network.Masked().String())
	}
	return out, true
}

// count parses a number of clients; 0 where there is none.
func count(text string) (n int32, ok bool) {
	if text == "" {
		return 0, true
	}
	number, err := strconv.ParseInt(text, 10, 32)
	return int32(number), err == nil && number >= 1 && number <= 1_000_000
}
