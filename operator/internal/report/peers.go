package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/internal/tokenfile"
)

const (
	// peerTime bounds the question to all replicas.
	peerTime = 2 * time.Second
	// maxAsked is how many replicas are asked at once.
	maxAsked = 8
	// maxRecentBody bounds an answer: 10,000 Servers of two hundred bytes.
	maxRecentBody = 4 << 20
)

// Peers asks all replicas of the operator for their recent reports.
type Peers struct {
	cached    client.Reader
	table     *table
	operators Operators
	// self is the name of this replica's own Pod.
	self   string
	port   int
	token  *tokenfile.File
	http   *http.Client
	flight singleflight.Group
	looks  singleflight.Group
	// lookTime is how long a look waits for the reply; 0: for reportapi.LookTime.
	lookTime time.Duration
}

// Recent returns, by the Server's name, the last report of each Server of an owner, such as
// Fleet/lobbies, if it isn't older than reportapi.FreshFor and is from the Server's current
// Pod. It asks every replica that may have one. An error means that a replica didn't answer, so
// nothing is known about Servers that aren't busy. A second caller shares the answers to a
// question that is under way.
func (p *Peers) Recent(ctx context.Context, namespace, owner string) (map[string]reportapi.RecentReport, error) {
	answer := p.flight.DoChan(namespace+"/"+owner, func() (any, error) {
		// The question may outlive the caller that caused it.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), peerTime)
		defer cancel()
		return p.recent(bounded, namespace, owner)
	})
	select {
	case result := <-answer:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(map[string]reportapi.RecentReport), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("ask the operator's replicas about %s in namespace %s: %w", owner, namespace, ctx.Err())
	}
}

func (p *Peers) recent(ctx context.Context, namespace, owner string) (map[string]reportapi.RecentReport, error) {
	servers, err := ServersOf(ctx, p.cached, namespace, owner)
	if err != nil {
		return nil, err
	}
	addresses, err := p.addresses(ctx)
	if err != nil {
		return nil, err
	}
	pods := make(map[string]string, len(servers)) // the UID of each Server's Pod
	for i := range servers {
		pod := &corev1.Pod{}
		if err := p.cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: servers[i].Name}, pod, client.UnsafeDisableDeepCopy); err == nil {
			pods[servers[i].Name] = string(pod.UID)
		}
	}
	answers := make([][]reportapi.RecentReport, len(addresses)+1)
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(maxAsked)
	for i, address := range addresses {
		group.Go(func() (err error) {
			answers[i], err = p.ask(asking, address, namespace, owner)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	// Last, so that none of it is older than the others' answers.
	answers[len(addresses)] = p.table.recentOf(time.Now(), servers)
	return newest(pods, answers), nil
}

// newest takes each Server's newest report that is from the Server's current Pod.
func newest(pods map[string]string, answers [][]reportapi.RecentReport) map[string]reportapi.RecentReport {
	all := map[string]reportapi.RecentReport{}
	fresh := reportapi.FreshFor.Milliseconds()
	for _, answer := range answers {
		for _, r := range answer {
			if r.PodUID == "" || pods[r.Name] != r.PodUID || r.AgeMilliseconds > fresh {
				continue
			}
			if had, ok := all[r.Name]; !ok || newer(r, had) {
				all[r.Name] = r
			}
		}
	}
	return all
}

// newer reports whether a report takes precedence over another one of the same Pod. Ages are
// only as exact as an answer was fast: where they don't decide, somebody plays if one of the
// two reports says so.
func newer(a, b reportapi.RecentReport) bool {
	if a.Instance == b.Instance {
		return a.Sequence > b.Sequence
	}
	if gap := b.AgeMilliseconds - a.AgeMilliseconds; max(gap, -gap) > peerTime.Milliseconds() {
		return gap > 0
	}
	return a.Busy
}

// addresses are the addresses of the other replicas: of all that aren't gone, ready or not,
// since a sidecar may have an old connection to one.
func (p *Peers) addresses(ctx context.Context) ([]string, error) {
	var pods corev1.PodList
	err := p.cached.List(ctx, &pods, client.InNamespace(p.operators.Account.Namespace),
		client.MatchingLabelsSelector{Selector: p.operators.Selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the operator's pods: %w", err)
	}
	var list []string
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Name != p.self && mayHaveReports(time.Now(), pod) {
			list = append(list, pod.Status.PodIP)
		}
	}
	return list, nil
}

// mayHaveReports reports whether a Pod may still run. One that should have ended long ago is on
// a node that is lost: none of its reports count.
func mayHaveReports(now time.Time, pod *corev1.Pod) bool {
	if pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	return pod.DeletionTimestamp.IsZero() || now.Before(pod.DeletionTimestamp.Add(reportapi.FreshFor))
}

func (p *Peers) ask(ctx context.Context, address, namespace, owner string) ([]reportapi.RecentReport, error) {
	var answer reportapi.Recent
	asked := time.Now()
	query := url.Values{reportapi.NamespaceQuery: {namespace}, reportapi.OwnerQuery: {owner}}
	if err := p.get(ctx, address, reportapi.RecentPath, query, &answer); err != nil {
		return nil, err
	}
	// They may have grown older on the way.
	took := time.Since(asked).Milliseconds()
	for i := range answer.Servers {
		answer.Servers[i].AgeMilliseconds += took
	}
	return answer.Servers, nil
}

// get reads a document of another replica.
func (p *Peers) get(ctx context.Context, address, path string, query url.Values, into any) (err error) {
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(address, strconv.Itoa(p.port)), Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("build the request for %s: %w", u.Host, err)
	}
	token, err := p.token.Get()
	if err != nil {
		return fmt.Errorf("read the operator's token: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := p.http.Do(req)
	if err != nil {
		// Without the local port, which differs each time.
		if op := new(net.OpError); errors.As(err, &op) {
			err = op.Err
		}
		return fmt.Errorf("the operator's replica at %s doesn't answer: %w", u.Host, err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the operator's replica at %s answered %s, want 200", u.Host, res.Status)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxRecentBody)).Decode(into); err != nil {
		return fmt.Errorf("decode the answer of the operator's replica at %s: %w", u.Host, err)
	}
	return nil
}
