package gametype

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// fleet is what matters of one of a GameType's Fleets. It is comparable: two that
// are equal give the same plan.
type fleet struct {
	name            string
	uid             types.UID
	resourceVersion string
	generation      int64
	// ownerGeneration is the GameType's for which a wake changed it last; 0 where
	// none did.
	ownerGeneration int64

	// number counts the revisions; 0 where somebody took the annotation off.
	number int64
	// sent is of which template it was made.
	sent sentTemplate
	// current is whether its template is the GameType's.
	current bool
	// unlike is whether its other settings aren't the GameType's.
	unlike bool
	// deleting is whether its deletion was asked for.
	deleting bool
	// retiringSince is when its last Servers were told to drain; zero while it is
	// current or has others.
	retiringSince time.Time

	// desired is its spec.replicas, and observed whether its status is about that.
	desired  int32
	observed bool
	// These are its status.
	active, ready, allocated, draining, players, capacity int32

	// reason and message are those of its condition Ready where that is False.
	reason, message string
}

// observe reads a Fleet of a GameType.
func observe(gt *v1alpha1.GameType, o *v1alpha1.Fleet) fleet {
	s := &o.Status
	f := fleet{
		name: o.Name, uid: o.UID, resourceVersion: o.ResourceVersion, generation: o.Generation,
		sent:     sentOf(o),
		current:  isCurrent(gt, o.Spec.Template, sentOf(o)),
		unlike:   o.Spec.ScaleDown != gt.Spec.ScaleDown || o.Spec.Scheduling != gt.Spec.Scheduling,
		deleting: !o.DeletionTimestamp.IsZero(),
		desired:  1,
		observed: s.ObservedGeneration >= o.Generation,
		active:   s.Replicas, ready: s.ReadyReplicas, allocated: s.AllocatedReplicas, draining: s.DrainingReplicas,
		players: s.Players, capacity: s.Capacity,
	}
	if o.Spec.Replicas != nil {
		f.desired = *o.Spec.Replicas
	}
	f.ownerGeneration, _ = strconv.ParseInt(o.Annotations[v1alpha1.OwnerGenerationAnnotation], 10, 64)
	f.number, _ = strconv.ParseInt(o.Annotations[v1alpha1.RevisionAnnotation], 10, 64) // 0 where there is none
	if since, err := time.Parse(time.RFC3339, o.Annotations[v1alpha1.RetiringSinceAnnotation]); err == nil {
		f.retiringSince = since
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		f.reason, f.message = c.Reason, c.Message
	}
	return f
}

// sentTemplate are the hashes of the template that a Fleet was made of, and of what the API
// server stored where that was something else; empty where none is noted.
type sentTemplate struct{ sent, stored string }

func sentOf(o *v1alpha1.Fleet) sentTemplate {
	return sentTemplate{o.Annotations[v1alpha1.TemplateHashAnnotation], o.Annotations[v1alpha1.StoredHashAnnotation]}
}

// isCurrent reports whether a Fleet has the GameType's template. It compares what templates
// mean, as a hash would tell two ways to write the same one apart; and where that
// differs, what was sent when the Fleet was made: a webhook or a policy may change what
// is stored, and another Fleet would be changed likewise. Who changes it later makes it
// another one.
func isCurrent(gt *v1alpha1.GameType, template v1alpha1.ServerTemplate, of sentTemplate) bool {
	desired := desiredTemplate(gt)
	if equality.Semantic.DeepEqual(template, desired) {
		return true
	}
	return of.sent != "" && of.sent == templatehash.Of(desired) && (of.stored == "" || of.stored == templatehash.Of(template))
}

// counted is how many Servers of it take players or will: those that it is to
// have, and those that it hasn't let go of yet. Allocated ones that are more than
// it is to have don't count: like draining ones they go when their games end.
func (f *fleet) counted() int32 {
	spared := max(0, f.allocated-f.desired)
	return max(f.desired, f.active-spared)
}

// sure is how many of its Servers are Ready and stay: none as long as its status
// isn't about what it was told last.
func (f *fleet) sure() int32 {
	if !f.observed {
		return 0
	}
	return min(f.ready, f.desired)
}

// unready is how many Servers it is to have that aren't Ready for sure.
func (f *fleet) unready() int32 {
	if !f.observed {
		return 0
	}
	return f.desired - f.sure()
}

// empty reports whether nothing is left of it but its template.
func (f *fleet) empty() bool { return f.observed && f.desired == 0 && f.active == 0 && f.draining == 0 }

// byNumber puts the oldest revision first, and is never undecided.
func byNumber(a, b *fleet) int {
	return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.name, b.name))
}
