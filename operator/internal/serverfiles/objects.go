package serverfiles

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/templatehash"
	"dormouse.dev/dormouse/operator/internal/text"
)

// objects are those that serve the files of an owner's Servers, by kind.
type objects struct {
	deployments []appsv1.Deployment
	services    []corev1.Service
	es          []v1alpha1.ElasticService
}

func (o *objects) empty() bool { return len(o.deployments)+len(o.services)+len(o.es) == 0 }

// objectsOf reads an owner's objects from the cache.
func (r *Reconciler) objectsOf(ctx context.Context, of client.Object) (objects, error) {
	var deployments appsv1.DeploymentList
	var services corev1.ServiceList
	var es v1alpha1.ElasticServiceList
	for _, list := range []client.ObjectList{&deployments, &services, &es} {
		// They are only read.
		err := r.Client.List(ctx, list, client.InNamespace(of.GetNamespace()), client.MatchingFields{indexOwner: string(of.GetUID())}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return objects{}, fmt.Errorf("list what serves the files of %s: %w", client.ObjectKeyFromObject(of), err)
		}
	}
	return objects{deployments.Items, services.Items, es.Items}, nil
}

// pass is one look at an owner.
type pass struct {
	*Reconciler
	owner

	have    objects
	served  []served
	notices []kit.Notice
	again   requeue.After
	// shared is how the disks of a Server are shared, where that was asked.
	shared map[string]disks.Sharing
}

// keep keeps the objects of one Server, and its disks, which may never have been used.
func (p *pass) keep(ctx context.Context, set *disks.Set) error {
	s := served{service: Name(set.Name)}
	ready, err := p.objectsReady(ctx, set)
	if err == nil {
		ready, err = p.makeRoom(ctx, set, ready)
	}
	s.ready = ready
	p.served = append(p.served, s)
	return err
}

// objectsReady keeps the three objects, and is the condition of them.
func (p *pass) objectsReady(ctx context.Context, set *disks.Set) (metav1.Condition, error) {
	sidecar := &corev1.PodTemplate{}
	err := p.Client.Get(ctx, p.SidecarTemplate, sidecar)
	if err == nil && len(sidecar.Template.Spec.Containers) == 0 {
		err = errors.New("it has no container")
	}
	if err != nil {
		p.again.AtMost(refusedRetry)
		return problem(reasons.NoSidecar, "The PodTemplate %s, which says what the sidecar is, can't be used; apply config/sidecar: %s", p.SidecarTemplate, text.Bounded(err.Error())), nil
	}
	var es *v1alpha1.ElasticService
	found := map[string]client.Object{}
	for _, k := range kinds {
		have, err := p.current(ctx, k.empty(), set)
		if err != nil {
			return metav1.Condition{}, err
		}
		if have != nil && !p.owns(have) {
			p.again.AtMost(refusedRetry)
			return taken(k.name, have.GetName()), nil
		}
		found[k.name] = have
	}
	// The API server is asked about the disks only where there is something to make of them.
	shared, err := p.sharing(ctx, set)
	if err != nil {
		return metav1.Condition{}, err
	}
	set.Anywhere = shared == disks.SharedByAll
	missing := found["Deployment"] == nil || ptr.Deref(found["Deployment"].(*appsv1.Deployment).Spec.Replicas, 1) > 0
	if missing {
		err := disks.Keep(ctx, p.Live, p.Client, set)
		if others := (*disks.OthersError)(nil); errors.As(err, &others) {
			p.again.AtMost(refusedRetry)
			return problem(reasons.NameTaken, "%s", others.Error()), nil
		}
		if err != nil {
			return p.refused(err, "the disks of Server "+set.Name)
		}
		if waits, err := p.unfilled(ctx, set); err != nil || waits != "" {
			p.again.AtMost(fillLook)
			return condition.Unknown(conditions.FilesServed, reasons.DisksBusy, "Disk %s of Server %s doesn't have yet what it begins with.", waits, set.Name), err
		}
	}
	var made []string
	for _, b := range build(set, sidecar) {
		created, problem, err := p.write(ctx, b, found[b.kind])
		if err != nil || problem.Type != "" {
			return problem, err
		}
		if created {
			made = append(made, b.kind)
		}
	}
	if len(made) > 0 {
		p.notices = append(p.notices, kit.Normal("FilesOffered", "ServeFiles", "Made %s for the files of Server %s.", text.Some(made), set.Name))
	}
	if have, ok := found["ElasticService"].(*v1alpha1.ElasticService); ok {
		es = have
	}
	return p.reported(es, Name(set.Name)), nil
}

// unfilled is a disk that doesn't have yet what it begins with: what somebody put there would be moved
// aside. It is empty where there is none.
func (p *pass) unfilled(ctx context.Context, set *disks.Set) (string, error) {
	for i := range set.Spec.Storage {
		disk := &set.Spec.Storage[i]
		if disk.From == nil {
			continue
		}
		claim, err := p.claim(ctx, set, disk.Name)
		if err != nil || claim == nil || disks.Unfilled(claim, disk) {
			return disk.Name, err
		}
	}
	return "", nil
}

// reported is what an ElasticService says of itself.
func (p *pass) reported(es *v1alpha1.ElasticService, name string) metav1.Condition {
	var c *metav1.Condition
	if es != nil {
		c = meta.FindStatusCondition(es.Status.Conditions, conditions.Ready)
	}
	switch {
	case c == nil:
		return condition.Unknown(conditions.FilesServed, reasons.Pending, "ElasticService %s has said nothing yet.", name)
	case c.Status == metav1.ConditionTrue:
		return condition.True(conditions.FilesServed, reasons.OK, "")
	}
	said := condition.Unknown(conditions.FilesServed, c.Reason, "ElasticService %s: %s", name, text.Bounded(c.Message))
	said.Status = c.Status
	return said
}

func taken(kind, name string) metav1.Condition {
	return problem(reasons.NameTaken, "There is a %s named %s that isn't for these files, and it is left alone: delete or rename it, or remove spec.files.", kind, name)
}

// kinds are those of a Server's three objects, the Deployment first.
var kinds = []struct {
	name  string
	empty func() client.Object
}{
	{"Deployment", func() client.Object { return &appsv1.Deployment{} }},
	{"Service", func() client.Object { return &corev1.Service{} }},
	{"ElasticService", func() client.Object { return &v1alpha1.ElasticService{} }},
}

// current reads one of a Server's objects from the cache; nil: there is none.
func (p *pass) current(ctx context.Context, have client.Object, set *disks.Set) (client.Object, error) {
	key := client.ObjectKey{Namespace: set.Namespace, Name: Name(set.Name)}
	err := p.Client.Get(ctx, key, have)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("read %T %s: %w", have, key, err)
	}
	return have, nil
}

func (p *pass) owns(o client.Object) bool { return metav1.IsControlledBy(o, p.object) }

// write brings an object to what is desired. It asks the API server for nothing where the object is
// as it should be.
func (p *pass) write(ctx context.Context, b built, have client.Object) (created bool, problem metav1.Condition, err error) {
	hash := templatehash.OfAny(b.desired)
	if hash == "" {
		return false, problem, fmt.Errorf("%s %s can't be encoded", b.kind, b.desired.GetName())
	}
	mark(b.desired, hash)
	if b.asked != "" {
		annotate(b.desired, wellknown.FilesAskedAnnotation, b.asked)
	}
	switch {
	case have != nil && !have.GetDeletionTimestamp().IsZero():
		p.again.AtMost(startLook)
		return false, condition.Unknown(conditions.FilesServed, reasons.Pending, "%s %s is being deleted, and another one follows.", b.kind, b.desired.GetName()), nil
	case have != nil && asDesired(have, b.desired):
		return false, problem, nil
	case have == nil:
		have, problem, err = p.create(ctx, b)
		if have == nil {
			return false, problem, err
		}
		created = true
	default:
		if left := awaitsLastClient(p.Now(), have, b.desired); left > 0 {
			p.again.AtMost(left)
			return false, problem, nil
		}
	}
	// It may only be this very one: the name might be somebody else's by now.
	b.desired.SetUID(have.GetUID())
	if err := p.dropPorts(ctx, have, b.desired); err != nil {
		problem, err = p.refused(err, b.kind+" "+b.desired.GetName())
		return created, problem, err
	}
	if err := patch.Apply(ctx, p.Client, fieldOwner, b.desired); err != nil {
		problem, err = p.refused(err, b.kind+" "+b.desired.GetName())
		return created, problem, err
	}
	return created, problem, nil
}

// create makes an object that the cache doesn't have; nil: it can't be made now.
func (p *pass) create(ctx context.Context, b built) (client.Object, metav1.Condition, error) {
	what := b.kind + " " + b.desired.GetName()
	if d, ok := b.desired.(*appsv1.Deployment); ok {
		// The cache has only those of ours.
		there := &appsv1.Deployment{}
		err := p.Live.Get(ctx, client.ObjectKeyFromObject(d), there)
		if err == nil && !p.owns(there) {
			p.again.AtMost(refusedRetry)
			return nil, taken(b.kind, d.Name), nil
		}
		if err == nil {
			return there, metav1.Condition{}, nil // somebody took its label off
		}
		if !apierrors.IsNotFound(err) {
			return nil, metav1.Condition{}, fmt.Errorf("read %s: %w", what, err)
		}
	}
	err := p.Client.Create(ctx, b.begin, client.FieldOwner(beginner))
	if err == nil {
		return b.begin, metav1.Condition{}, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		problem, err := p.refused(err, what)
		return nil, problem, err
	}
	// The cache will show it, and whose it is.
	p.again.AtMost(startLook)
	return nil, condition.Unknown(conditions.FilesServed, reasons.Pending, "%s has just been made.", what), nil
}

// dropPorts takes ports off a Service that somebody has put there. To server-side apply those are the
// others', and two may not have one name.
func (p *pass) dropPorts(ctx context.Context, have, desired client.Object) error {
	is, isService := have.(*corev1.Service)
	want, ok := desired.(*corev1.Service)
	if !isService || !ok || len(is.Spec.Ports) == 0 ||
		len(is.Spec.Ports) == 1 && is.Spec.Ports[0].Port == want.Spec.Ports[0].Port && is.Spec.Ports[0].Protocol == want.Spec.Ports[0].Protocol {
		return nil
	}
	changed := is.DeepCopy()
	changed.Spec.Ports = []corev1.ServicePort{*want.Spec.Ports[0].DeepCopy()}
	for _, port := range is.Spec.Ports {
		if port.Name == portName {
			changed.Spec.Ports[0].NodePort = port.NodePort
		}
	}
	return p.Client.Patch(ctx, changed, client.MergeFromWithOptions(is, client.MergeFromWithOptimisticLock{}))
}

// refused turns an error that somebody has to mend into a condition.
func (p *pass) refused(err error, what string) (metav1.Condition, error) {
	if !refusal.Is(err) {
		return metav1.Condition{}, fmt.Errorf("write %s: %w", what, err)
	}
	p.again.AtMost(refusedRetry)
	return problem(reasons.Refused, "The API server refuses %s: %s", what, text.Bounded(refusal.Words(err))), nil
}

// removeOthers deletes the objects of Servers whose files aren't to be served any more. Their disks
// stay. The ElasticService is the last: without it, and with the other two, its controller would
// wake the Deployment, so that the Service works on.
func (p *pass) removeOthers(ctx context.Context) error {
	wanted := map[string]bool{}
	for _, set := range p.sets {
		wanted[Name(set.Name)] = true
	}
	left, removed := map[string]bool{}, []string{}
	remove := func(o client.Object) error {
		if !o.GetDeletionTimestamp().IsZero() {
			return nil
		}
		uid := o.GetUID()
		err := p.Client.Delete(ctx, o, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %T %s: %w", o, client.ObjectKeyFromObject(o), err)
		}
		return nil
	}
	for i := range p.have.deployments {
		if d := &p.have.deployments[i]; !wanted[d.Name] {
			left[d.Name] = true
			p.forget(d)
			if d.DeletionTimestamp.IsZero() {
				removed = append(removed, d.Name)
			}
			if err := remove(d); err != nil {
				return err
			}
		}
	}
	for i := range p.have.services {
		if s := &p.have.services[i]; !wanted[s.Name] {
			left[s.Name] = true
			if err := remove(s); err != nil {
				return err
			}
		}
	}
	for i := range p.have.es {
		es := &p.have.es[i]
		switch {
		case wanted[es.Name]:
		case left[es.Name]:
			p.again.AtMost(removalLook)
		default:
			if err := remove(es); err != nil {
				return err
			}
		}
	}
	if len(removed) > 0 {
		p.notices = append(p.notices, kit.Normal("FilesRemoved", "ServeFiles", "Deleted what served files: %s. The disks stay.", text.Some(removed)))
	}
	return nil
}

// removalLook is when to look whether the first two objects are gone. Their deletion is watched, too.
const removalLook = time.Second
