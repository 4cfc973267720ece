package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TimeWindow is a window of time that recurs.
type TimeWindow struct {
	// cron is when a window opens: five fields, for minute, hour, day of the month, month and
	// day of the week, as in "0 18 * * FRI-SUN". A day must fit one of the two fields for days
	// where both are given.
	//
	// Where clocks are put forward, a window that would open in the hour that there isn't opens
	// when the clocks change. Where they are put back, one that opens in the hour that there is
	// twice opens both times.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-0-9*,/]+ [-0-9*,/]+ [-0-9*,/]+ [-0-9A-Za-z*,/]+ [-0-9A-Za-z*,/]+$')",message="cron must have five fields with one space between them, for minute, hour, day of the month, month and day of the week, such as 0 18 * * FRI-SUN"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^ ]+( [^ ]+){4}$') || self.matches('^([*]|0*([0-9]|[1-5][0-9])(-0*([0-9]|[1-5][0-9]))?)(/0*[1-9][0-9]?)?(,([*]|0*([0-9]|[1-5][0-9])(-0*([0-9]|[1-5][0-9]))?)(/0*[1-9][0-9]?)?)*( [^ ]+){4}$')",message="cron's field 1, the minute, must be * or numbers from 0 to 59, such as 0 or 5-20 or */15"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^ ]+( [^ ]+){4}$') || self.matches('^[^ ]+ ([*]|0*([0-9]|1[0-9]|2[0-3])(-0*([0-9]|1[0-9]|2[0-3]))?)(/0*[1-9][0-9]?)?(,([*]|0*([0-9]|1[0-9]|2[0-3])(-0*([0-9]|1[0-9]|2[0-3]))?)(/0*[1-9][0-9]?)?)*( [^ ]+){3}$')",message="cron's field 2, the hour, must be * or numbers from 0 to 23, such as 18 or 8-20 or */2"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^ ]+( [^ ]+){4}$') || self.matches('^[^ ]+ [^ ]+ ([*]|0*([1-9]|[12][0-9]|3[01])(-0*([1-9]|[12][0-9]|3[01]))?)(/0*[1-9][0-9]?)?(,([*]|0*([1-9]|[12][0-9]|3[01])(-0*([1-9]|[12][0-9]|3[01]))?)(/0*[1-9][0-9]?)?)*( [^ ]+){2}$')",message="cron's field 3, the day of the month, must be * or numbers from 1 to 31, such as 1 or 1-7 or */2"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^ ]+( [^ ]+){4}$') || self.matches('^[^ ]+ [^ ]+ [^ ]+ ([*]|(0*([1-9]|1[0-2])|(?i:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))(-(0*([1-9]|1[0-2])|(?i:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)))?)(/0*[1-9][0-9]?)?(,([*]|(0*([1-9]|1[0-2])|(?i:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))(-(0*([1-9]|1[0-2])|(?i:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)))?)(/0*[1-9][0-9]?)?)*( [^ ]+){1}$')",message="cron's field 4, the month, must be * or numbers from 1 to 12 or names from JAN to DEC, such as JUN-AUG"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^ ]+( [^ ]+){4}$') || self.matches('^[^ ]+ [^ ]+ [^ ]+ [^ ]+ ([*]|(0*[0-7]|(?i:SUN|MON|TUE|WED|THU|FRI|SAT))(-(0*[0-7]|(?i:SUN|MON|TUE|WED|THU|FRI|SAT)))?)(/0*[1-9][0-9]?)?(,([*]|(0*[0-7]|(?i:SUN|MON|TUE|WED|THU|FRI|SAT))(-(0*[0-7]|(?i:SUN|MON|TUE|WED|THU|FRI|SAT)))?)(/0*[1-9][0-9]?)?)*$')",message="cron's field 5, the day of the week, must be * or numbers from 0 to 7, where 0 and 7 are Sunday, or names from SUN to SAT, such as MON-FRI"
	Cron string `json:"cron"`

	// timeZone is whose clocks cron goes by: a name of the IANA database such as Europe/Berlin;
	// by default UTC.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][-+A-Za-z0-9_]*(/[A-Za-z0-9][-+A-Za-z0-9_]*)*$') && self != 'Local' && timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0",message="timeZone must be a name of the IANA database such as Europe/Berlin or UTC"
	TimeZone string `json:"timeZone,omitempty"`

	// duration is how long a window stays open, in hours that pass, whatever clocks show; from
	// 1m to 168h.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration must be a duration from 1m to 168h such as 90m or 5h"
	Duration metav1.Duration `json:"duration"`
}
