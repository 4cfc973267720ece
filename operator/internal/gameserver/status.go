package gameserver

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/gameserver/planner"
	"dormouse.dev/dormouse/operator/internal/gameserver/slowstart"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// updateStatus writes the status and emits the events.
func (r *Reconciler) updateStatus(ctx context.Context, now time.Time, original, s *v1alpha1.Server, o planner.Observed, p planner.Plan, done outcome) (time.Duration, error) {
	planner.SetStatus(now, s, o, p, done.ports.trouble)
	if done.refused != nil {
		reason, message := whyRefused(s, done.refused)
		planner.SetRefused(now, s, reason, message)
		p.RequeueAfter.AtMost(retryAfter(done.refused))
	}
	if s.Status.State == v1alpha1.ServerStarting {
		p.RequeueAfter.AtMost(slowstart.Until(now, s, o.Pod, o.UsualBoot))
	}
	r.picker.Wait(client.ObjectKeyFromObject(s), planner.AwaitsHostPort(o.Pod) || done.ports.trouble != nil)
	if left := planner.Debounce(now, original, s, o, p); left > 0 && done.refused == nil {
		p.RequeueAfter.AtMost(left)
		return p.RequeueAfter.Duration(), nil
	}
	wrote, err := r.writeStatus(ctx, original, s, done.turn)
	if err != nil {
		return 0, err
	}
	if wrote {
		r.boots.Note(now, original, s, o.Pod)
	}
	if wrote || p.Forced || p.Retire != "" {
		kit.Emit(r.Events, s, notices(original, s, p)...)
	}
	return p.RequeueAfter.Duration(), nil
}

// errReported means that a report was written while a pass was under way.
var errReported = errors.New("a report of its sidecar was written meanwhile")

// writeStatus writes what changed. Reports are written concurrently, to fields of their own.
// The write needs the version that was read only where it clears those fields, or changes a
// condition: a cache that lags would make that change, its time and its event twice. Where a report
// was written at this replica since the Server was read, that is known without asking. turn is set where
// the pass has the Server's turn already.
func (r *Reconciler) writeStatus(ctx context.Context, original, s *v1alpha1.Server, turn bool) (bool, error) {
	a, b := &original.Status, &s.Status
	if equality.Semantic.DeepEqual(a, b) {
		return false, nil
	}
	before, after := statusOnly(original), statusOnly(s)
	if a.DeletionAllowed != b.DeletionAllowed || !equality.Semantic.DeepEqual(a.Game, b.Game) || !equality.Semantic.DeepEqual(a.Players, b.Players) ||
		!equality.Semantic.DeepEqual(a.Conditions, b.Conditions) {
		if r.Reports == nil {
			return patch.Status(ctx, r.Client, before, after)
		}
		if !turn {
			defer r.Reports.Turn(s.UID)()
		}
		if r.Reports.WroteAfter(original) {
			return false, apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("servers").GroupResource(), s.Name, errReported)
		}
		wrote, err := patch.Status(ctx, r.Client, before, after)
		if wrote {
			r.Reports.Wrote(after) // as the API server has it
		}
		return wrote, err
	}
	err := r.Client.Status().Patch(ctx, after, client.MergeFrom(before))
	return err == nil, wrapf(client.IgnoreNotFound(err), "write the status of Server %s", client.ObjectKeyFromObject(s))
}

// statusOnly is a Server without what no status write changes: comparing that costs more than the write.
func statusOnly(s *v1alpha1.Server) *v1alpha1.Server {
	return &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion},
		Status:     s.Status,
	}
}
