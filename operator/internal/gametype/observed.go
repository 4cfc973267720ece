package gametype

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/gametype/publish"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// observed is what a pass sees.
type observed struct {
	// acting is the GameType with the template that its Servers are to have, and undone is set
	// where that is an earlier revision's. One that is being deleted is as it is.
	acting *v1alpha1.GameType
	undone bool
	// undoing describes the effect of UndoToAnnotation; empty where there is none.
	undoing string
	// template is the one that new Servers get.
	template v1alpha1.ServerTemplate
	fleets   []fleet
	at       occupants
	// oldPorts are those of earlier revisions' Servers.
	oldPorts []publish.OldPort
	// pendingFor is when to look again at pending writes; 0 for never.
	pendingFor time.Duration
}

// fleet is the part of a GameType's Fleet that a plan depends on. It is comparable: equal ones
// lead to the same plan.
type fleet struct {
	name            string
	uid             types.UID
	resourceVersion string
	generation      int64
	// ownerGeneration is the GameType's generation for which a wake last changed it; 0 where
	// none did.
	ownerGeneration int64

	// number counts the revisions; 0 where somebody removed the annotation.
	number int64
	// sent identifies the template from which it was created.
	sent sentTemplate
	// current is set where its template is the GameType's.
	current bool
	// unlike is set where its other settings aren't the GameType's.
	unlike bool
	// deleting is set where it is being deleted.
	deleting bool
	// retiringSince is when its last Servers were told to drain; zero while it is current or
	// has others.
	retiringSince time.Time

	// everReady is set where one of its Servers has ever been Ready.
	everReady bool
	// places are those of its Servers as spec.places has them, and trial is TrialAnnotation's
	// value.
	places, trial string

	// desired is its spec.replicas, and observed is set where its status is about that.
	desired  int32
	observed bool
	// The following are from its status.
	active, ready, allocated, draining, players, capacity int32

	// reason and message are those of its condition Ready where that is False.
	reason, message string
}

// observe reads a Fleet of a GameType whose desiredTemplate is given.
func observe(gt *v1alpha1.GameType, desired *v1alpha1.ServerTemplate, o *v1alpha1.Fleet) fleet {
	s := &o.Status
	sent := sentTemplate{o.Annotations[wellknown.TemplateHashAnnotation], o.Annotations[wellknown.StoredHashAnnotation]}
	current := isCurrent(desired, o.Spec.Template, sent)
	// On its ports may be spoken something else.
	samePorts := slices.EqualFunc(o.Spec.Template.Spec.Ports, gt.Spec.Template.Spec.Ports, func(is, want v1alpha1.ServerPort) bool {
		return is.Protocol == want.Protocol
	})
	f := fleet{
		name: o.Name, uid: o.UID, resourceVersion: o.ResourceVersion, generation: o.Generation,
		sent:      sent,
		current:   current,
		unlike:    current && !samePorts || o.Spec.ScaleDown != gt.Spec.ScaleDown || o.Spec.Scheduling != gt.Spec.Scheduling,
		deleting:  !o.DeletionTimestamp.IsZero(),
		everReady: s.FirstReadyTime != nil || gt.Status.CurrentRevision != nil && gt.Status.CurrentRevision.Name == revisionName(gt, o.Name),
		places:    o.Spec.Places,
		trial:     o.Annotations[wellknown.TrialAnnotation],
		desired:   1,
		observed:  s.ObservedGeneration >= o.Generation,
		active:    s.Replicas, ready: s.ReadyReplicas, allocated: s.AllocatedReplicas, draining: s.DrainingReplicas,
		players: s.Players, capacity: s.Capacity,
	}
	if o.Spec.Replicas != nil {
		f.desired = *o.Spec.Replicas
	}
	f.ownerGeneration, _ = strconv.ParseInt(o.Annotations[wellknown.OwnerGenerationAnnotation], 10, 64)
	f.number, _ = strconv.ParseInt(o.Annotations[wellknown.RevisionAnnotation], 10, 64) // 0 where there is none
	if since, err := time.Parse(time.RFC3339, o.Annotations[wellknown.RetiringSinceAnnotation]); err == nil {
		f.retiringSince = since
	}
	if c := meta.FindStatusCondition(s.Conditions, conditions.Ready); c != nil && c.Status != metav1.ConditionTrue {
		f.reason, f.message = c.Reason, c.Message
	}
	return f
}

// sentTemplate has the hashes of the template from which a Fleet was created, and of what the
// API server stored if that differs; empty where none is noted.
type sentTemplate struct{ sent, stored string }

// isCurrent reports whether a Fleet has the desired template. It compares the templates'
// meaning, because one template can be written in two ways with different hashes. Where that
// differs it compares what was sent when the Fleet was created: a webhook or a policy may
// change what is stored, and would change another Fleet likewise. A later change by somebody
// else makes it another template.
func isCurrent(desired *v1alpha1.ServerTemplate, template v1alpha1.ServerTemplate, of sentTemplate) bool {
	if equality.Semantic.DeepEqual(&template, desired) || equality.Semantic.DeepEqual(templatehash.Revision(template), templatehash.Revision(*desired)) {
		return true
	}
	return of.sent != "" && of.sent == templatehash.Of(*desired) && (of.stored == "" || of.stored == templatehash.Of(template))
}

// counted is how many of its Servers take players or will: those that it is to have, and those
// that it hasn't drained or deleted yet. Allocated ones beyond its replicas don't count: like
// draining ones they go when their games end.
func (f *fleet) counted() int32 {
	spared := max(0, f.allocated-f.desired)
	return max(f.desired, f.active-spared)
}

// sure is how many of its Servers are Ready and stay; 0 as long as its status isn't about its
// latest spec.
func (f *fleet) sure() int32 {
	if !f.observed {
		return 0
	}
	return min(f.ready, f.desired)
}

// unready is how many of the Servers that it is to have aren't surely Ready.
func (f *fleet) unready() int32 {
	if !f.observed {
		return 0
	}
	return f.desired - f.sure()
}

// empty reports whether it has nothing left but its template.
func (f *fleet) empty() bool { return f.observed && f.desired == 0 && f.active == 0 && f.draining == 0 }

// byNumber orders by revision, the oldest first. No two are equal.
func byNumber(a, b *fleet) int {
	return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.name, b.name))
}
