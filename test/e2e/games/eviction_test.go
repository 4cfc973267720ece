package games

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
)

// A game's players are counted by a probe that comes every minute. Who joins in between is
// found when somebody evicts, and an empty game goes at once.
func TestAnEvictionFindsWhoHasJustJoined(t *testing.T) {
	t.Parallel()
	const query = 7002
	for i, players := range []int{1, 2, 1, 0} {
		t.Run(fmt.Sprintf("game %d with %d players", i, players), func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			spec := suite.Cluster.ServerSpec("--sdk=", fmt.Sprintf("--a2s=%d", query))
			spec.Ports = append(spec.Ports, v1alpha1.ServerPort{Name: "query", ContainerPort: query, Protocol: v1alpha1.ServerProtocolUDP})
			spec.Players.Probe = &v1alpha1.PlayersProbe{Type: v1alpha1.ProbeSource, Port: "query"}
			spec.Health = v1alpha1.HealthSpec{Period: &metav1.Duration{Duration: time.Minute}}
			s := playing(ctx, t, ns, spec)
			waitLabel(ctx, t, s, "true")
			before := podOf(s)
			if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(s), before); err != nil {
				t.Fatal(err)
			}
			// The game alone, and nobody else, hears of them.
			var now struct {
				Players struct {
					Online int `json:"online"`
				} `json:"players"`
			}
			now.Players.Online = players
			if err := suite.Cluster.AskGame(ctx, s, http.MethodPut, "/players", now, nil); err != nil {
				t.Fatal(err)
			}
			err := suite.Cluster.Client.SubResource("eviction").Create(ctx, before, &policyv1.Eviction{})
			if players == 0 {
				if err != nil {
					t.Fatalf("an empty game can't be evicted: %v", err)
				}
				gone(ctx, t, before)
				return
			}
			if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), fmt.Sprintf("%d play on it", players)) {
				t.Fatalf("evicting a game with %d players that joined just before: %v", players, err)
			}
			stays(ctx, t, s, 2*time.Second)
			if _, err := suite.Cluster.WaitServer(ctx, client.ObjectKeyFromObject(s), "seen with its players", func(s *v1alpha1.Server) bool {
				return s.Status.Players != nil && int(s.Status.Players.Current) == players && !s.Status.DeletionAllowed
			}); err != nil {
				t.Error(err)
			}
		})
	}
}
