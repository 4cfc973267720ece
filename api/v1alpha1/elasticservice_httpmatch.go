package v1alpha1

// HTTPQueryParamMatch is a parameter that a request's query must have, as in ?name=value.
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.regex)",message="a parameter to match needs either value or regex"
type HTTPQueryParamMatch struct {
	// name is the parameter's name, letter for letter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[ -~]+$')",message="name must be of visible ASCII characters and spaces"
	Name string `json:"name"`

	// value is the parameter's whole value, letter for letter, without the query's %-escapes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[ -~]+$')",message="value must be of visible ASCII characters and spaces"
	Value string `json:"value,omitempty"`

	// regex is a regular expression in RE2's syntax that fits some part of the value; with ^ and
	// $ around it, all of it. It is bounded as a probe's pathRegex is.
	// +optional
	Regex HTTPRegex `json:"regex,omitempty"`
}

// HTTPRegex is a regular expression in RE2's syntax, without long repetitions: it takes time and
// memory in proportion to its length with those written out.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self.matches('^[ -~]+$')",message="regex must be of visible ASCII characters and spaces"
// +kubebuilder:validation:XValidation:rule="!self.matches('[{]([0-9]+,)?[0-9]{3}')",message="regex must not repeat anything 100 times or more"
// +kubebuilder:validation:XValidation:rule="'a'.matches(self) in [true, false]",message="regex must be a regular expression in RE2's syntax"
type HTTPRegex string
