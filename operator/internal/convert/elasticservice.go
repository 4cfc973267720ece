package convert

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	sigsjson "sigs.k8s.io/json"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// elasticServiceOut is an ElasticService as it is written: without defaults, which whoever reads
// it would have to tell from what was converted.
type elasticServiceOut struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Metadata   metadataOut `json:"metadata"`
	Spec       specOut     `json:"spec"`
}

type metadataOut struct {
	Namespace   string            `json:"namespace,omitempty"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type specOut struct {
	Service        string                  `json:"service"`
	ScaleTargetRef v1alpha1.ScaleTargetRef `json:"scaleTargetRef"`
	MinReplicas    int32                   `json:"minReplicas,omitempty"`
	SleepAfter     string                  `json:"sleepAfter"`
	Idle           *idleOut                `json:"idle,omitempty"`
	Autoscaler     *autoscalerOut          `json:"autoscaler,omitempty"`
	Awake          []windowOut             `json:"awake,omitempty"`
	Ports          []portOut               `json:"ports,omitempty"`
}

type idleOut struct {
	Triggers []triggerOut `json:"triggers"`
}

type triggerOut struct {
	Type       string        `json:"type"`
	Prometheus prometheusOut `json:"prometheus"`
}

type prometheusOut struct {
	ServerAddress string `json:"serverAddress"`
	Query         string `json:"query"`
	Threshold     string `json:"threshold"`
	UptimeFilter  string `json:"uptimeFilter"`
}

type autoscalerOut struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

type windowOut struct {
	Cron     string `json:"cron"`
	TimeZone string `json:"timeZone"`
	Duration string `json:"duration"`
}

type portOut struct {
	Name     string            `json:"name"`
	Protocol v1alpha1.Protocol `json:"protocol"`
	Asleep   asleepOut         `json:"asleep"`
}

type asleepOut struct {
	Probes []v1alpha1.HTTPProbe `json:"probes"`
}

// conversion is that of one object: notes are about what has no counterpart or means something
// else, each with a field's path, and errs are what it fails of.
type conversion struct {
	notes []string
	errs  []error
}

func (c *conversion) note(path, format string, args ...any) {
	c.notes = append(c.notes, path+": "+fmt.Sprintf(format, args...))
}

func (c *conversion) wrong(path, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
}

// elasticService converts an ElastiService.
func elasticService(text []byte, services map[types.NamespacedName]*corev1.Service) (*elasticServiceOut, []string, error) {
	c := &conversion{}
	var from elastiService
	c.decode("", text, &from)
	if len(c.errs) > 0 {
		return nil, nil, errors.Join(c.errs...)
	}
	to := &elasticServiceOut{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "ElasticService",
		Metadata: metadataOut{
			Namespace: from.Metadata.Namespace, Name: from.Metadata.Name,
			Labels: from.Metadata.Labels, Annotations: annotations(from.Metadata.Annotations),
		},
		Spec: specOut{
			Service: from.Spec.Service, ScaleTargetRef: c.target(from.Spec.ScaleTargetRef),
			MinReplicas: from.Spec.MinTargetReplicas, SleepAfter: short(cooldown(from.Spec.CooldownPeriod)),
		},
	}
	switch problems := validation.IsDNS1035Label(from.Spec.Service); {
	case from.Spec.Service == "":
		c.wrong("spec.service", "it is missing")
	case len(problems) > 0:
		c.wrong("spec.service", "it must be the name of a Service: %s", problems[0])
	}
	switch n := len(from.Metadata.Name); {
	case n == 0:
		c.wrong("metadata.name", "it is missing")
	case n > validation.LabelValueMaxLength:
		c.wrong("metadata.name", "it has %d characters, and an ElasticService's at most %d; give it another, which need not be the Service's", n, validation.LabelValueMaxLength)
	}
	c.numbers(&from.Spec)
	c.idle(&to.Spec, from.Spec.Triggers)
	if a := from.Spec.Autoscaler; a != nil {
		kind := strings.ToLower(a.Type)
		if kind != "hpa" && kind != "keda" || a.Name == "" {
			c.wrong("spec.autoscaler", "it must have the type hpa or keda, and a name")
		} else if !fits(a.Name, maxObjectName, validObjectName) {
			c.wrong("spec.autoscaler.name", "it is %q, which is no object's name", a.Name)
		}
		to.Spec.Autoscaler = &autoscalerOut{Kind: kind, Name: a.Name}
		switch kind {
		case "keda":
			c.note("spec.autoscaler", "the operator must have the rights of config/components/keda, and the ScaledObject a minReplicaCount of 1 at least, which is 0 by default, and no idleReplicaCount; until then AutoscalerReady is False and the service never sleeps")
		case "hpa":
			c.note("spec.autoscaler", "the HorizontalPodAutoscaler must have minReplicas of 1 at least, and one that KEDA made counts as keda, by the ScaledObject's name; until then AutoscalerReady is False and the service never sleeps")
		}
	}
	c.period(&to.Spec, from.Spec.EnabledPeriod)
	if len(from.Spec.ProbeResponse) > 0 {
		service := services[types.NamespacedName{Namespace: from.Metadata.Namespace, Name: from.Spec.Service}]
		c.probes(&to.Spec, from.Spec.ProbeResponse, service)
	}
	return to, c.notes, errors.Join(c.errs...)
}

// unknown finds the path in what a strict decoder says about a field that it doesn't know.
var unknown = regexp.MustCompile(`^unknown field "(.*)"$`)

// decode decodes JSON that stands at a path. A field that KubeElasti doesn't have, or has since
// lately, is noted.
func (c *conversion) decode(path string, text []byte, into any) {
	strict, err := sigsjson.UnmarshalStrict(text, into)
	if err != nil {
		c.wrong(cmp.Or(path, "spec"), "it can't be read: %v", err)
		return
	}
	for _, err := range strict {
		match := unknown.FindStringSubmatch(err.Error())
		if match == nil {
			c.wrong(cmp.Or(path, "spec"), "it can't be read: %v", err)
			continue
		}
		field := match[1]
		if path != "" {
			field = path + "." + field
		}
		c.note(field, "it isn't known, has no counterpart and is left out")
	}
}

// annotations are those that are the owner's own.
func annotations(all map[string]string) map[string]string {
	own := maps.Clone(all)
	maps.DeleteFunc(own, func(name, _ string) bool {
		prefix, _, _ := strings.Cut(name, "/")
		return prefix == "kubectl.kubernetes.io" || prefix == elastiGroup
	})
	return own
}

// target is the workload. KubeElasti takes two resources' names for kinds as well.
func (c *conversion) target(from elastiTarget) v1alpha1.ScaleTargetRef {
	to := v1alpha1.ScaleTargetRef{APIVersion: from.APIVersion, Kind: from.Kind, Name: from.Name}
	switch to.Kind {
	case "deployments":
		to.Kind = "Deployment"
	case "rollouts":
		to.Kind = "Rollout"
	}
	if to.APIVersion == "" || to.Kind == "" || to.Name == "" {
		c.wrong("spec.scaleTargetRef", "it must have an apiVersion, a kind and a name")
	} else {
		c.targetName(to)
	}
	return to
}

// cooldown is how long a service is idle before it sleeps. KubeElasti takes 0 for its default.
func cooldown(seconds int32) time.Duration {
	return time.Duration(cmp.Or(seconds, elastiCooldown)) * time.Second
}

// short writes a duration of whole seconds without its zeros.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// idle converts the triggers.
func (c *conversion) idle(to *specOut, triggers []elastiTrigger) {
	if len(triggers) == 0 {
		c.note("spec.triggers", "there are none, so that the service never sleeps by itself, here as there; give it spec.idle.triggers")
		return
	}
	to.Idle = &idleOut{}
	for i, t := range triggers {
		path := fmt.Sprintf("spec.triggers[%d]", i)
		if t.Type != "prometheus" {
			c.wrong(path+".type", "it is %q, and only prometheus can be converted", t.Type)
			continue
		}
		path += ".metadata"
		var from elastiPrometheus
		if len(t.Metadata) > 0 {
			c.decode(path, t.Metadata, &from)
		}
		prometheus := prometheusOut{
			ServerAddress: from.ServerAddress, Query: from.Query,
			Threshold: c.threshold(path, from.Threshold), UptimeFilter: cmp.Or(from.UptimeFilter, elastiUptimeFilter),
		}
		if from.ServerAddress == "" || from.Query == "" {
			c.wrong(path, "it must have a serverAddress and a query")
		} else {
			c.trigger(path, prometheus)
		}
		to.Idle.Triggers = append(to.Idle.Triggers, triggerOut{Type: "prometheus", Prometheus: prometheus})
	}
	c.note("spec.triggers", "a number that rises keeps an awake service awake, as there, but wakes none that sleeps: clients do. The values of a vector are added up, and one below 0 keeps the service awake")
	c.note("spec.triggers", "a Prometheus in another namespace must let this one in, by its Service's annotation dormouse.dev/trigger-namespaces")
}

// threshold is a number above 0, as text. KubeElasti takes 0 where there is none.
func (c *conversion) threshold(path string, raw json.RawMessage) string {
	path += ".threshold"
	text := string(raw)
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	if text == "" || text == "null" {
		text = "0"
	}
	number, err := strconv.ParseFloat(text, 64)
	written := strconv.FormatFloat(number, 'f', -1, 64)
	switch {
	case err != nil || math.IsNaN(number) || math.IsInf(number, 0):
		c.wrong(path, "it is %q and must be a number", text)
	case number <= 0:
		c.wrong(path, "it is %s, below which no count is, so that the service never sleeps there; give it the number from which on the service is busy", text)
	case len(written) > maxThreshold:
		c.wrong(path, "it is %s, which has %d characters without an exponent, and an ElasticService's at most %d; multiply it and the query by the same", text, len(written), maxThreshold)
	}
	return written
}
