package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/bench/process"
	"dormouse.dev/dormouse/test/bench/sidecars"
)

const (
	games   = "games"
	account = "default"
	// creators is how many objects are made at once.
	creators = 64
	// drainEvery is the time between two drains, which leaves the API server its
	// breath: each makes the operator write a few times.
	drainEvery = 100 * time.Millisecond
	// creationTime bounds the making of all.
	creationTime = 20 * time.Minute
)

// makeGames makes Servers and waits for the Pods that the operator makes of them,
// says of each what kubelet would, and signs the tokens of their sidecars.
func (c *cluster) makeGames(ctx context.Context, count int) ([]sidecars.Sidecar, error) {
	ctx, cancel := context.WithTimeout(ctx, creationTime)
	defer cancel()
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: games}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: games, Name: account}},
	} {
		if err := c.client.Create(ctx, o); err != nil {
			return nil, fmt.Errorf("create %s: %w", o.GetName(), err)
		}
	}
	var made atomic.Int64
	stop := progress(ctx, "%d Servers of %d have a Pod", &made, count)
	defer stop()
	pods := make([]*corev1.Pod, count)
	group, bounded := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range count {
		group.Go(func() (err error) {
			pods[i], err = c.makeGame(bounded, fmt.Sprintf("game-%05d", i))
			made.Add(1)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return c.sign(ctx, pods)
}

func (c *cluster) makeGame(ctx context.Context, name string) (*corev1.Pod, error) {
	s := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: games, Name: name},
		Spec: v1alpha1.ServerSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				ServiceAccountName: account, Containers: []corev1.Container{{Name: "game", Image: "none"}},
			}},
			Players: &v1alpha1.PlayersSpec{Capacity: 16},
		},
	}
	if err := c.client.Create(ctx, s); err != nil {
		return nil, fmt.Errorf("create Server %s: %w", name, err)
	}
	pod := &corev1.Pod{}
	err := process.Until(ctx, creationTime, "there is a Pod "+name, func() (bool, error) {
		err := c.client.Get(ctx, client.ObjectKeyFromObject(s), pod)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return nil, err
	}
	original := pod.DeepCopy()
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.1.2.3"
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "game", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	if err := c.client.Status().Patch(ctx, pod, client.MergeFrom(original)); err != nil {
		return nil, fmt.Errorf("write the status of Pod %s: %w", name, err)
	}
	return pod, nil
}

// sign makes a token for each Pod: one as the API server gives it, with another
// Pod's name in it.
func (c *cluster) sign(ctx context.Context, pods []*corev1.Pod) ([]sidecars.Sidecar, error) {
	say("signing %d tokens", len(pods))
	first, err := c.token(ctx, games, account, wellknown.TokenAudience, pods[0])
	if err != nil {
		return nil, err
	}
	parsed, err := jose.ParseSignedCompact(first, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		return nil, fmt.Errorf("read a token: %w", err)
	}
	var claims map[string]any
	if err := json.Unmarshal(parsed.UnsafePayloadWithoutVerification(), &claims); err != nil {
		return nil, fmt.Errorf("read a token: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(c.signingKey)
	if err != nil {
		return nil, fmt.Errorf("read the signing key: %w", err)
	}
	header := parsed.Signatures[0].Protected
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.SignatureAlgorithm(header.Algorithm), Key: jose.JSONWebKey{Key: key, KeyID: header.KeyID},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("make a signer: %w", err)
	}
	own, ok := claims["kubernetes.io"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the token of %s has no claims of Kubernetes' own", pods[0].Name)
	}
	all := make([]sidecars.Sidecar, len(pods))
	group := errgroup.Group{}
	group.SetLimit(creators)
	for i, pod := range pods {
		group.Go(func() error {
			its, whole := maps.Clone(own), maps.Clone(claims)
			its["pod"], whole["jti"] = map[string]any{"name": pod.Name, "uid": pod.UID}, string(pod.UID)
			whole["kubernetes.io"] = its
			payload, err := json.Marshal(whole)
			if err != nil {
				return fmt.Errorf("encode claims: %w", err)
			}
			signed, err := signer.Sign(payload)
			if err != nil {
				return fmt.Errorf("sign a token: %w", err)
			}
			all[i].Server, all[i].Players = pod.Name, 1
			all[i].Token, err = signed.CompactSerialize()
			return err
		})
	}
	return all, group.Wait()
}

// call is when an API call was made, and when it was answered.
type call struct{ made, answered time.Time }

// drain drains Servers and gives each one's call.
func (c *cluster) drain(ctx context.Context, names []string) (map[string]call, error) {
	calls := make([]call, len(names))
	group, bounded := errgroup.WithContext(ctx)
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for i, name := range names {
		select {
		case <-tick.C:
		case <-bounded.Done():
		}
		group.Go(func() error {
			s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: games, Name: name}}
			calls[i].made = time.Now()
			err := c.client.Patch(bounded, s, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"drain":true}}`)))
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("drain Server %s: %w", name, err)
			}
			calls[i].answered = time.Now()
			return nil
		})
	}
	err := group.Wait()
	byName := make(map[string]call, len(names))
	for i, name := range names {
		byName[name] = calls[i]
	}
	return byName, err
}

// watchDrains gives when the API server tells a watch of each Server's drain, until
// the context ends.
func (c *cluster) watchDrains(ctx context.Context, tell func(name string, at time.Time)) error {
	// From now on: to be told of all that there is would cost the API server much
	// more than what is measured.
	var now v1alpha1.ServerList
	if err := c.client.List(ctx, &now, client.InNamespace(games), client.Limit(1)); err != nil {
		return fmt.Errorf("list Servers: %w", err)
	}
	watcher, err := c.client.Watch(ctx, &v1alpha1.ServerList{}, client.InNamespace(games),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: now.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("watch Servers: %w", err)
	}
	go func() {
		defer watcher.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case event, ok := <-watcher.ResultChan():
				if !ok {
					return
				}
				if s, is := event.Object.(*v1alpha1.Server); is && s.Spec.Drain {
					tell(s.Name, time.Now())
				}
			}
		}
	}()
	return nil
}

// progress tells every few seconds how far something is.
func progress(ctx context.Context, format string, done *atomic.Int64, of int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				say(format, done.Load(), of)
			}
		}
	}()
	return cancel
}
