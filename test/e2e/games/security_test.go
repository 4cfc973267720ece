package games

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// Where Kubernetes puts a Pod's own token as a rule, and Dormouse the sidecar's.
const (
	kubernetesSecrets = "var/run/secrets/kubernetes.io"
	dormouseSecrets   = "var/run/secrets/dormouse.dev"
)

// Where the namespace takes no Secret the sidecar has a token in a volume, and no other container
// has it. The test looks into the containers that run, at what they really see.
func TestOnlyTheSidecarHasAToken(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	noSecrets(ctx, t, ns)
	s := playing(ctx, t, ns, suite.Cluster.ServerSpec())
	pod := podOf(s)
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(s), pod); err != nil {
		t.Fatal(err)
	}
	game, err := suite.Cluster.Container(*pod)
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := game.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	if len(mounts) == 0 {
		t.Error("the game has no mounts at all: then this test sees nothing")
	}
	for _, mount := range mounts {
		if strings.Contains(mount, "secrets") || strings.Contains(mount, "token") {
			t.Errorf("the game has %s", mount)
		}
	}
	files, err := game.Files()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	if _, err := files.Stat("gameserver"); err != nil {
		t.Errorf("look at the game's own program: %v", err)
	}
	for _, path := range []string{kubernetesSecrets, dormouseSecrets} {
		if _, err := files.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("look for %s in the game's container: %v, want that it isn't there", path, err)
		}
	}

	sidecar, err := suite.Cluster.Sidecar(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	files, err = sidecar.Files()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	if _, err := files.Stat(kubernetesSecrets); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("look for %s in the sidecar's container: %v, want that it isn't there", kubernetesSecrets, err)
	}
	token, err := files.ReadFile(dormouseSecrets + "/token")
	if err != nil {
		t.Fatal(err)
	}
	checkClaims(t, string(token), pod)
}

// noSecrets keeps Secrets out of a namespace.
func noSecrets(ctx context.Context, t *testing.T, ns string) {
	t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "no-secrets"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("0")}},
	}
	if err := suite.Cluster.Client.Create(ctx, quota); err != nil {
		t.Fatal(err)
	}
	err := env.WaitUntil(ctx, "no Secret can be made", func(ctx context.Context) (bool, error) {
		err := suite.Cluster.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "probe-"}}, client.DryRunAll)
		return apierrors.IsForbidden(err), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkClaims checks that a token is good for Dormouse alone, for an hour at most,
// and dies with the Pod.
func checkClaims(t *testing.T, token string, pod *corev1.Pod) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("the token has %d parts, want 3", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	type bound struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	}
	var claims struct {
		Audiences  []string `json:"aud"`
		Subject    string   `json:"sub"`
		Expires    int64    `json:"exp"`
		Issued     int64    `json:"iat"`
		Kubernetes struct {
			Namespace string `json:"namespace"`
			Pod       bound  `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"dormouse.dev"}, claims.Audiences); diff != "" {
		t.Errorf("audiences (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(bound{pod.Name, string(pod.UID)}, claims.Kubernetes.Pod); diff != "" {
		t.Errorf("the Pod that it is bound to (-want +got):\n%s", diff)
	}
	if want := "system:serviceaccount:" + pod.Namespace + ":default"; claims.Subject != want || claims.Kubernetes.Namespace != pod.Namespace {
		t.Errorf("it is %s in %s, want %s in %s", claims.Subject, claims.Kubernetes.Namespace, want, pod.Namespace)
	}
	if life := time.Duration(claims.Expires-claims.Issued) * time.Second; life <= 0 || life > time.Hour {
		t.Errorf("it is good for %s, want an hour at most", life)
	}
}

// TestATokenReportsForItsOwnServerOnly reports with real tokens through the
// operator's Service, from where players are.
func TestATokenReportsForItsOwnServerOnly(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	mine, other := twoServers(ctx, t, ns)
	podOfMine := &corev1.Pod{}
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(mine), podOfMine); err != nil {
		t.Fatal(err)
	}
	// Somebody who may make Pods can label one as a Server's, but it isn't.
	plain := pendingPod(ctx, t, ns, "plain", nil)
	labeled := pendingPod(ctx, t, ns, "labeled", map[string]string{wellknown.ServerLabel: other.Name})
	token := func(audience string, pod *corev1.Pod) string {
		t.Helper()
		got, err := suite.Cluster.Token(ctx, ns, "default", audience, pod)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for name, c := range map[string]struct {
		token string
		code  int
	}{
		"another Server's token":              {token(wellknown.TokenAudience, podOfMine), http.StatusForbidden},
		"no token":                            {"", http.StatusUnauthorized},
		"a random string":                     {"3a7bd3e2360a3d29eea436fcfb7e44c7", http.StatusUnauthorized},
		"another audience":                    {token("example.com", podOfMine), http.StatusUnauthorized},
		"the API server's audience":           {token("", podOfMine), http.StatusUnauthorized},
		"a token without a Pod":               {token(wellknown.TokenAudience, nil), http.StatusUnauthorized},
		"the token of a Pod without a Server": {token(wellknown.TokenAudience, plain), http.StatusUnauthorized},
		"the token of a Pod with its label":   {token(wellknown.TokenAudience, labeled), http.StatusForbidden},
	} {
		if code, body := report(ctx, t, other.Name, c.token); code != c.code {
			t.Errorf("with %s: answered %d %s, want %d", name, code, body, c.code)
		}
	}

	// The same report is let in for the Server whose token it is. It comes from a
	// second process beside the sidecar that speaks for it, and so changes nothing.
	if code, body := report(ctx, t, mine.Name, token(wellknown.TokenAudience, podOfMine)); code != http.StatusOK {
		t.Errorf("with its own token: answered %d %s, want 200", code, body)
	}
	now := &v1alpha1.Server{}
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(other), now); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(other.Status, now.Status); diff != "" {
		t.Errorf("the other Server's status changed (-before +now):\n%s", diff)
	}
}

// twoServers makes two Servers and waits until both are ready.
func twoServers(ctx context.Context, t *testing.T, ns string) (mine, other *v1alpha1.Server) {
	t.Helper()
	var err error
	for name, into := range map[string]**v1alpha1.Server{"mine": &mine, "other": &other} {
		if *into, err = suite.Cluster.CreateServer(ctx, ns, name, suite.Cluster.ServerSpec()); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []**v1alpha1.Server{&mine, &other} {
		// The game tells its players as its last word about its start, and the condition follows.
		*s, err = suite.Cluster.WaitServer(ctx, client.ObjectKeyFromObject(*s), "ready", func(s *v1alpha1.Server) bool {
			c := meta.FindStatusCondition(s.Status.Conditions, conditions.DeletionAllowed)
			return s.Status.State == v1alpha1.ServerReady && s.Status.Game != nil && s.Status.Game.Reported && c != nil && c.Reason == reasons.NoPlayers
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return mine, other
}

// pendingPod makes a Pod that no node takes: a token needs one to be bound to.
func pendingPod(ctx context.Context, t *testing.T, ns, name string, labels map[string]string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{"example.com/nowhere": "true"},
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers:                    []corev1.Container{{Name: "game", Image: suite.Cluster.TestServer}},
		},
	}
	if err := suite.Cluster.Client.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// report tells the operator that 99 play on a Server.
func report(ctx context.Context, t *testing.T, server, token string) (int, string) {
	t.Helper()
	operator := types.NamespacedName{Namespace: env.SystemNamespace, Name: env.Operator}
	address, err := suite.Cluster.ClusterIP(ctx, operator, 8080, corev1.IPv4Protocol)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"server":%q,"instance":"a-stranger","sequence":1,"deletionAllowed":false,
		"game":{"state":"Ready","reported":true,"players":{"current":99,"capacity":100}}}`, server)
	web := &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: suite.Cluster.DialPlayer}}
	return ask(ctx, t, web, http.MethodPost, "http://"+address+"/v1/report", token, body)
}

func ask(ctx context.Context, t *testing.T, web *http.Client, method, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

// TestWhatActsForAGameIsOnLoopback calls the sidecar from outside its Pod.
func TestWhatActsForAGameIsOnLoopback(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	s := occupied(ctx, t, ns, suite.Cluster.ServerSpec())
	pod := &corev1.Pod{}
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(s), pod); err != nil {
		t.Fatal(err)
	}
	// What it answers to anybody is below; what it refuses, it refuses to others
	// than the game alone.
	var permission struct {
		Allowed bool `json:"allowed"`
	}
	if err := suite.Cluster.AskSidecar(ctx, s, http.MethodGet, "/allow_delete", nil, &permission); err != nil {
		t.Fatal(err)
	}
	if permission.Allowed {
		t.Fatal("a Server with players allows its deletion")
	}
	if len(pod.Status.PodIPs) == 0 {
		t.Fatal("the Pod has no address")
	}
	for _, ip := range pod.Status.PodIPs {
		for _, port := range []string{"9357", "9358"} {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(ip.IP, port))
			if err == nil {
				_ = conn.Close()
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("connect to %s port %s: %v, want it refused", ip.IP, port, err)
			}
		}
		checkPublic(ctx, t, "http://"+net.JoinHostPort(ip.IP, "9359"))
	}
	if err := suite.Cluster.AskSidecar(ctx, s, http.MethodGet, "/allow_delete", nil, &permission); err != nil {
		t.Fatal(err)
	}
	now := &v1alpha1.Server{}
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(s), now); err != nil {
		t.Fatal(err)
	}
	st := now.Status
	if permission.Allowed || st.DeletionAllowed || st.State != v1alpha1.ServerReady || st.Players == nil || st.Players.Current != 2 {
		t.Errorf("a stranger's calls changed something: deletion allowed %t, and the status is %+v", permission.Allowed, st)
	}
}

// checkPublic checks what the sidecar answers on its Pod's address.
func checkPublic(ctx context.Context, t *testing.T, base string) {
	t.Helper()
	if code, body := ask(ctx, t, http.DefaultClient, http.MethodGet, base+"/healthz", "", ""); code != http.StatusOK {
		t.Errorf("GET %s/healthz: answered %d %s, want 200", base, code, body)
	}
	if code, body := ask(ctx, t, http.DefaultClient, http.MethodGet, base+"/metrics", "", ""); code != http.StatusOK || !strings.Contains(body, "dormouse_build_info") {
		t.Errorf("GET %s/metrics: answered %d with %d bytes, want 200 with metrics", base, code, len(body))
	}
	for path, body := range map[string]string{
		"/allow_delete":        `{"allowed":true}`,
		"/players":             `{"current":0}`,
		"/shutdown":            `{"shutdown":true}`,
		"/ready":               `{}`,
		"/allocate":            `{}`,
		"/health":              `{}`,
		"/metadata/label":      `{"key":"mine","value":"yours"}`,
		"/alpha/player/leave":  `{"playerID":"1"}`,
		"/healthz":             `{}`,
		"/metrics":             `{}`,
		"/v1beta1/counters/a":  `{"count":0}`,
		"/../allow_delete":     `{"allowed":true}`,
		"/healthz/../shutdown": `{"shutdown":true}`,
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			code, answer := ask(ctx, t, http.DefaultClient, method, base+path, "", body)
			if code != http.StatusNotFound && code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s%s: answered %d %s, want 404 or 405", method, base, path, code, answer)
			}
		}
	}
}
