package env

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/dev/images"
)

// Promtool is where Debian's package prometheus has the tool that checks rules.
const Promtool = "/usr/bin/promtool"

const (
	prometheusProgram = "/usr/bin/prometheus"
	// prometheusTimeout bounds its start.
	prometheusTimeout = 30 * time.Second
)

// InstallPrometheus installs Debian's Prometheus where it is missing.
func InstallPrometheus(ctx context.Context, progress io.Writer) error {
	return InstallDebian(ctx, "prometheus", prometheusProgram, progress)
}

// Prometheus runs Debian's Prometheus as a Pod of a namespace, and gives its API
// once it is ready. files are its configuration: prometheus.yml and what that
// names. It can't ask Kubernetes what to scrape, because Debian builds it without. The Pod has
// the label app: prometheus.
func (e *Env) Prometheus(ctx context.Context, namespace string, files map[string]string, progress io.Writer) (prometheusv1.API, error) {
	ref, err := e.prometheusImage(ctx, progress)
	if err != nil {
		return nil, err
	}
	pod := prometheusPod(namespace, ref)
	config := &corev1.ConfigMap{ObjectMeta: pod.ObjectMeta, Data: files}
	for _, o := range []client.Object{config, pod} {
		if err := e.Client.Create(ctx, o); err != nil {
			return nil, fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	ready, cancel := context.WithTimeout(ctx, prometheusTimeout)
	defer cancel()
	err = WaitUntil(ready, "Prometheus is ready", func(ctx context.Context) (bool, error) {
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, fmt.Errorf("read the Pod of Prometheus: %w", err)
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	c, err := api.NewClient(api.Config{Address: "http://" + net.JoinHostPort(pod.Status.PodIP, "9090")})
	if err != nil {
		return nil, fmt.Errorf("make a client of Prometheus: %w", err)
	}
	return prometheusv1.NewAPI(c), nil
}

// prometheusImage puts Debian's Prometheus into an image on the nodes.
func (e *Env) prometheusImage(ctx context.Context, progress io.Writer) (string, error) {
	if err := InstallPrometheus(ctx, progress); err != nil {
		return "", err
	}
	files, err := images.Closure(ctx, prometheusProgram)
	if err != nil {
		return "", err
	}
	maps.Copy(files, images.Base())
	spec := images.Spec{
		Ref:        "dormouse-prometheus:dev",
		Entrypoint: []string{prometheusProgram},
		User:       "65532:65532",
		WorkDir:    "/tmp",
		Files:      files,
	}
	archive := filepath.Join(e.Repo, "bin", "images", "prometheus.tar")
	fmt.Fprintf(progress, "building image %s\n", spec.Ref)
	if err := images.BuildAndSave(archive, spec); err != nil {
		return "", err
	}
	return spec.Ref, e.Cluster.LoadImage(ctx, archive)
}

func prometheusPod(namespace, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prometheus", Labels: map[string]string{"app": "prometheus"}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: ptr.To[int64](65532),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "prometheus", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				Args: []string{"--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/tmp/data"},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/-/ready", Port: intstr.FromInt32(9090)},
				}},
				VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/prometheus"}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "prometheus"}},
			}}},
		},
	}
}
