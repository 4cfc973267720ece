package convert

import (
	"net/url"
	"regexp"
	"time"
	"unicode/utf8"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Bounds of an ElasticService. What is beyond them the API server refuses.
const (
	maxMinReplicas   = 10000
	maxSleepAfter    = 8760 * time.Hour
	maxTriggers      = 8
	maxServerAddress = 1024
	maxQuery         = 4096
	maxThreshold     = 32
	maxUptimeFilter  = 512
	maxObjectName    = 253
	maxKind          = 63
)

// What an ElasticService's texts may be, as its validation has it.
var (
	validServerAddress = regexp.MustCompile(`^https?://[][A-Za-z0-9.:-]+(/([!$&-;=@-~]|%[0-9A-Fa-f]{2})*)?$`)
	validUptimeFilter  = regexp.MustCompile(`^[^{}]*$`)
	validAPIVersion    = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$`)
	validKind          = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	validObjectName    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
)

// fits reports whether a text has at most so many characters and fits a pattern.
func fits(text string, most int, pattern *regexp.Regexp) bool {
	return utf8.RuneCountInString(text) <= most && pattern.MatchString(text)
}

// numbers says which numbers of an ElastiService an ElasticService can't have.
func (c *conversion) numbers(from *elastiSpec) {
	if n := from.MinTargetReplicas; n < 0 || n > maxMinReplicas {
		c.wrong("spec.minTargetReplicas", "it is %d and must be from 1 to %d", n, maxMinReplicas)
	}
	if d := cooldown(from.CooldownPeriod); d < 0 || d > maxSleepAfter {
		c.wrong("spec.cooldownPeriod", "it is %d and must be from 1 to %d seconds, a year", from.CooldownPeriod, maxSleepAfter/time.Second)
	}
	if n := len(from.Triggers); n > maxTriggers {
		c.wrong("spec.triggers", "there are %d, and an ElasticService has at most %d; put some of them into one query", n, maxTriggers)
	}
}

// targetName says which names of a workload an ElasticService can't have.
func (c *conversion) targetName(to v1alpha1.ScaleTargetRef) {
	const path = "spec.scaleTargetRef"
	if !fits(to.APIVersion, maxObjectName, validAPIVersion) {
		c.wrong(path+".apiVersion", "it is %q and must be a group and a version such as apps/v1", to.APIVersion)
	}
	if !fits(to.Kind, maxKind, validKind) {
		c.wrong(path+".kind", "it is %q and must be a kind such as Deployment", to.Kind)
	}
	if !fits(to.Name, maxObjectName, validObjectName) {
		c.wrong(path+".name", "it is %q, which is no object's name", to.Name)
	}
}

// trigger says which texts of a trigger an ElasticService can't have. An address isn't quoted: it
// may have a password.
func (c *conversion) trigger(path string, to prometheusOut) {
	if u, err := url.ParseRequestURI(to.ServerAddress); err != nil || u.Host == "" || !fits(to.ServerAddress, maxServerAddress, validServerAddress) {
		c.wrong(path+".serverAddress", "it must be an http or https URL without a user, '?' or '#', of up to %d characters, such as http://prometheus.monitoring.svc:9090; an ElasticService has a user in the Secret of its trigger's auth", maxServerAddress)
	}
	if n := utf8.RuneCountInString(to.Query); n > maxQuery {
		c.wrong(path+".query", "it has %d characters, and an ElasticService's at most %d; make it shorter, for example by a recording rule", n, maxQuery)
	}
	if !fits(to.UptimeFilter, maxUptimeFilter, validUptimeFilter) {
		c.wrong(path+".uptimeFilter", "it must be label matchers such as job=\"gateway\", without braces and of up to %d characters", maxUptimeFilter)
	}
}
