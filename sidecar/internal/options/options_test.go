package options

import (
	"errors"
	"flag"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/outlive"
)

func environment(more map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if value, ok := more[name]; ok {
			return value, true
		}
		value, ok := map[string]string{"SERVER_NAME": "lobby", "SERVER_NAMESPACE": "games"}[name]
		return value, ok
	}
}

// TestWhatTheOperatorPasses reads what the operator gives each sidecar.
func TestWhatTheOperatorPasses(t *testing.T) {
	got, err := Parse([]string{
		"--operator=http://operator:8080", "--token-file=/var/run/secrets/dormouse.dev/token", "--grpc-port=9357", "--http-port=9358",
		"--listen=:9359", "--readiness=SDK", "--unreported=Denied", "--capacity=20", "--health-initial-delay=1m0s",
		"--health-period=10s", "--health-failure-threshold=5", "--health-disabled", "--probe=minecraft:25565",
		"--outlive-game", "--game-ports=25565/TCP,19132/UDP",
	}, environment(nil), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := Options{
		Name: "lobby", Namespace: "games", OperatorURL: "http://operator:8080", TokenFile: "/var/run/secrets/dormouse.dev/token",
		GRPCPort: 9357, HTTPPort: 9358, ListenAddress: ":9359", ProbeType: v1alpha1.ProbeMinecraft, ProbePort: 25565,
		OutliveGame: true, GamePorts: []outlive.Port{{Number: 25565, Protocol: corev1.ProtocolTCP}, {Number: 19132, Protocol: corev1.ProtocolUDP}},
		Game: game.Config{
			Readiness: v1alpha1.ServerReadinessSDK, Unreported: v1alpha1.DeletionDenied, Capacity: 20, Probed: true, AfterGame: true,
			Health: game.Health{InitialDelay: time.Minute, Period: 10 * time.Second, FailureThreshold: 5, Disabled: true},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

// The key is in the environment alone: arguments are for anybody to read.
func TestTheKeyIsInTheEnvironment(t *testing.T) {
	key := map[string]string{"DORMOUSE_REPORT_KEY": "secret", "DORMOUSE_POD_UID": "1-2-3"}
	got, err := Parse([]string{"--report-key-id=abc"}, environment(key), io.Discard)
	if err != nil || got.ReportKey != "secret" || got.ReportKeyID != "abc" || got.PodUID != "1-2-3" {
		t.Errorf("options %+v, %v", got, err)
	}
	if got, err := Parse(nil, environment(key), io.Discard); err != nil || got.ReportKey != "" {
		t.Errorf("without an ID: options %+v, %v", got, err)
	}
	for name := range key {
		if _, err := Parse([]string{"--report-key-id=abc"}, environment(map[string]string{name: key[name]}), io.Discard); err == nil || !strings.Contains(err.Error(), "must be set") {
			t.Errorf("with %s alone: %v", name, err)
		}
	}
}

func TestTheEnvironmentFillsIn(t *testing.T) {
	env := environment(map[string]string{"DORMOUSE_GRPC_PORT": "1000", "DORMOUSE_HTTP_PORT": "2000", "DORMOUSE_LOG_LEVEL": "debug"})
	got, err := Parse([]string{"--http-port=3000"}, env, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got.GRPCPort != 1000 || got.HTTPPort != 3000 || got.LogLevel != slog.LevelDebug {
		t.Errorf("options %+v", got)
	}
	h := got.Game.Health
	if got.Game.Probed || got.Game.Readiness != v1alpha1.ServerReadinessAuto || h.Period != 5*time.Second || h.FailureThreshold != 3 {
		t.Errorf("defaults %+v", got.Game)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for arg, names := range map[string]string{
		"--operator=operator:8080":      "--operator",
		"--operator=http://u@operator":  "--operator",
		"--token-file=":                 "--token-file",
		"--grpc-port=65536":             "--grpc-port",
		"--http-port=-1":                "--http-port",
		"--listen=9359":                 "--listen",
		"--readiness=Never":             "--readiness",
		"--unreported=Perhaps":          "--unreported",
		"--capacity=-1":                 "--capacity",
		"--capacity=1000001":            "--capacity",
		"--health-initial-delay=25h":    "--health-initial-delay",
		"--health-period=999ms":         "--health-period",
		"--health-failure-threshold=0":  "--health-failure-threshold",
		"--game-ports=7777":             "--game-ports",
		"--game-ports=7777/SCTP":        "--game-ports",
		"--game-ports=1/TCP,0/UDP":      "--game-ports",
		"--game-ports=1/TCP,":           "--game-ports",
		"--probe=minecraft":             "--probe",
		"--probe=chess:1":               "--probe",
		"--probe=quake3:0":              "--probe",
		"--probe=quake3:1:2":            "--probe",
		"--log-level=loud":              "--log-level",
		"--none":                        "none",
		"word":                          "word",
		"--health-initial-delay=-1s":    "--health-initial-delay",
		"--health-failure-threshold=1e": "health-failure-threshold",
	} {
		if _, err := Parse([]string{arg}, environment(nil), io.Discard); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	nowhere := func(string) (string, bool) { return "", false }
	if _, err := Parse(nil, nowhere, io.Discard); err == nil || !strings.Contains(err.Error(), "SERVER_NAME") {
		t.Errorf("without a Server: %v", err)
	}
	if _, err := Parse([]string{"--help"}, nowhere, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("help: %v", err)
	}
}
