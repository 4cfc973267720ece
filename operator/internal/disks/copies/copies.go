// Package copies knows from the cluster whose disks are being copied: by Backups and Restores that
// are Running, and by Jobs that fill a new disk, of which both ends count. A copy that an earlier
// leader began is in no table of this one's.
//
// It reads the cache, and once in each namespace the API server, because the cache of a new leader
// may be behind. It writes nothing.
package copies

import (
	"context"
	"fmt"
	"slices"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// IndexServer finds Backups and Restores by their Server.
const IndexServer = "dormouse.copies"

// pageSize is how many objects are read from the API server with one call.
const pageSize = 500

// SetupIndexes adds the indexes that a Finder uses.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, kind := range []client.Object{&v1alpha1.Backup{}, &v1alpha1.Restore{}} {
		err := indexer.IndexField(ctx, kind, IndexServer, func(o client.Object) []string { return []string{ServerOf(o).Name} })
		if err != nil {
			return fmt.Errorf("add the index %s: %w", IndexServer, err)
		}
	}
	return nil
}

// Finder finds who copies a Server's disks.
type Finder struct {
	// Client reads from the cache, which has the indexes of SetupIndexes.
	Client client.Reader
	// Live reads from the API server.
	Live client.Reader

	mu         sync.Mutex
	namespaces map[string]*namespace
}

// namespace is what the API server said of a namespace when it was first asked about.
type namespace struct {
	mu      sync.Mutex
	learnt  bool
	running map[string][]client.Object // by the Server's name
}

// Of are phrases for those that copy a Server's disks, such as "Backup survival-1"; none: nobody.
func (f *Finder) Of(ctx context.Context, server types.NamespacedName) ([]string, error) {
	var holders []string
	by := []client.ListOption{client.InNamespace(server.Namespace), client.MatchingFields{IndexServer: server.Name}, client.UnsafeDisableDeepCopy}
	for _, list := range []client.ObjectList{&v1alpha1.BackupList{}, &v1alpha1.RestoreList{}} {
		if err := f.Client.List(ctx, list, by...); err != nil {
			return nil, fmt.Errorf("list the copies of Server %s: %w", server, err)
		}
		for _, o := range itemsOf(list) {
			if running(o) {
				holders = append(holders, Phrase(o))
			}
		}
	}
	former, err := f.former(ctx, server)
	for _, holder := range former {
		if !slices.Contains(holders, holder) {
			holders = append(holders, holder)
		}
	}
	return holders, err
}

// former are those of an earlier leader that run still.
func (f *Finder) former(ctx context.Context, server types.NamespacedName) ([]string, error) {
	f.mu.Lock()
	if f.namespaces == nil {
		f.namespaces = map[string]*namespace{}
	}
	ns := f.namespaces[server.Namespace]
	if ns == nil {
		ns = &namespace{}
		f.namespaces[server.Namespace] = ns
	}
	f.mu.Unlock()
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if !ns.learnt {
		found, err := f.learn(ctx, server.Namespace)
		if err != nil {
			return nil, err
		}
		ns.learnt, ns.running = true, found
	}
	var holders []string
	var still []client.Object
	for _, o := range ns.running[server.Name] {
		uid := o.GetUID()
		err := f.Live.Get(ctx, client.ObjectKeyFromObject(o), o)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read %s: %w", Phrase(o), err)
		}
		if apierrors.IsNotFound(err) || o.GetUID() != uid || !running(o) {
			continue
		}
		still = append(still, o)
		holder := Phrase(o)
		if server.Name == o.GetLabels()[wellknown.DisksLabel] && isJob(o) {
			holder = from(o)
		}
		holders = append(holders, holder)
	}
	if len(still) == 0 {
		delete(ns.running, server.Name)
	} else {
		ns.running[server.Name] = still
	}
	return holders, nil
}

// learn lists what runs in a namespace.
func (f *Finder) learn(ctx context.Context, name string) (map[string][]client.Object, error) {
	found := map[string][]client.Object{}
	kinds := []struct {
		list client.ObjectList
		only client.ListOption
	}{
		{&v1alpha1.BackupList{}, client.MatchingLabels{}},
		{&v1alpha1.RestoreList{}, client.MatchingLabels{}},
		{&batchv1.JobList{}, client.HasLabels{wellknown.DisksLabel}},
	}
	for _, kind := range kinds {
		for {
			err := f.Live.List(ctx, kind.list, client.InNamespace(name), kind.only, client.Limit(pageSize), client.Continue(kind.list.GetContinue()))
			if err != nil {
				return nil, fmt.Errorf("list what is copied in namespace %s: %w", name, err)
			}
			for _, o := range itemsOf(kind.list) {
				if !running(o) {
					continue
				}
				for _, server := range serversOf(o) {
					copied, _ := o.DeepCopyObject().(client.Object)
					found[server] = append(found[server], copied)
				}
			}
			if kind.list.GetContinue() == "" {
				break
			}
		}
	}
	return found, nil
}

// ServerOf is the Server whose disks a Backup, a Restore or a Job copies.
func ServerOf(o client.Object) types.NamespacedName {
	key := types.NamespacedName{Namespace: o.GetNamespace()}
	switch o := o.(type) {
	case *v1alpha1.Backup:
		key.Name = o.Spec.Server
	case *v1alpha1.Restore:
		key.Name = o.Spec.Server
	case *batchv1.Job:
		key.Name = o.Labels[wellknown.CopiesLabel]
	}
	return key
}

// serversOf are the names of the Servers whose disks something has: a Job that fills a disk has that
// of its own Server, too.
func serversOf(o client.Object) []string {
	all := []string{ServerOf(o).Name}
	if isJob(o) {
		all = append(all, o.GetLabels()[wellknown.DisksLabel])
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

func isJob(o client.Object) bool {
	_, ok := o.(*batchv1.Job)
	return ok
}

// from names what fills a Server's disk, to that Server.
func from(o client.Object) string {
	if server := o.GetLabels()[wellknown.CopiesLabel]; server != "" {
		return FromServer(server)
	}
	return "Copy from a Backup"
}

// Phrase names what copies, as a holder of package disklock.
func Phrase(o client.Object) string {
	switch o := o.(type) {
	case *v1alpha1.Backup:
		return "Backup " + o.Name
	case *v1alpha1.Restore:
		return "Restore " + o.Name
	case *batchv1.Job:
		return ForServer(o.Labels[wellknown.DisksLabel])
	}
	return ""
}

// ForServer names what fills a new disk of a Server from another one's.
func ForServer(server string) string { return "Copy for " + server }

// FromServer names what fills a new disk with another Server's, to the Server with the new one.
func FromServer(server string) string { return "Copy from Server " + server }

// Ended lets through the changes with which a Backup or a Restore may have let the disks go.
func Ended() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return running(e.ObjectOld) && !running(e.ObjectNew) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return running(e.Object) },
	}
}

func running(o client.Object) bool {
	switch o := o.(type) {
	case *v1alpha1.Backup:
		return disks.BackupHolds(o)
	case *v1alpha1.Restore:
		return o.Status.Phase == v1alpha1.CopyRunning
	case *batchv1.Job:
		return !slices.ContainsFunc(o.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
		})
	}
	return false
}

func itemsOf(list client.ObjectList) []client.Object {
	var all []client.Object
	switch list := list.(type) {
	case *v1alpha1.BackupList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	case *v1alpha1.RestoreList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	case *batchv1.JobList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all
}
