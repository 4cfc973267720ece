package gamecalls

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gameapi"
)

// MaxRunning is how many servers a list has at most.
const MaxRunning = 1000

// Running is a server that runs.
type Running struct {
	Name          string        `json:"name" doc:"The Server's name."`
	Namespace     string        `json:"namespace"`
	PublicIP      string        `json:"publicIP" doc:"Where its ports are reached: its node's address, or its Pod's, inside the cluster, where no port is exposed."`
	Ports         []RunningPort `json:"ports" nullable:"false"`
	ActivePlayers int32         `json:"activePlayers" doc:"How many play." minimum:"0"`
	State         string        `json:"state" doc:"Ready, Allocated or Reserved."`
}

// RunningPort is a port of a server that runs.
type RunningPort struct {
	Name     string `json:"name"`
	Port     int32  `json:"port" minimum:"1" maximum:"65535"`
	Protocol string `json:"protocol"`
}

// Running are the servers that take players, of those that take part, by their names.
func (c *Calls) Running(ctx context.Context, by By) ([]Running, error) {
	if err := c.ask(ctx, by, Named{}, http.MethodGet, gameapi.CheckPath, nil); err != nil {
		return nil, err
	}
	var servers v1alpha1.ServerList
	if err := c.Cached.List(ctx, &servers, client.InNamespace(c.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the servers: %w", err)
	}
	list := []Running{}
	for i := range servers.Items {
		s := &servers.Items[i]
		if takesPart(s) && s.Status.State.TakesPlayers() && s.DeletionTimestamp.IsZero() {
			list = append(list, runningOf(s))
		}
	}
	slices.SortFunc(list, func(a, b Running) int { return cmp.Compare(a.Name, b.Name) })
	return list[:min(len(list), MaxRunning)], nil
}

func runningOf(s *v1alpha1.Server) Running {
	r := Running{Name: s.Name, Namespace: s.Namespace, PublicIP: s.Status.Address, State: string(s.Status.State), Ports: []RunningPort{}}
	for _, p := range s.Status.Ports {
		r.Ports = append(r.Ports, RunningPort{p.Name, p.Port, string(p.Protocol)})
	}
	if p := s.Status.Players; p != nil {
		r.ActivePlayers = p.Current
	}
	return r
}
