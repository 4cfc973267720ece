package v1alpha1

// PortHTTP is how clients of a port with the protocol http are treated while they have no server.
// +kubebuilder:validation:MinProperties=1
type PortHTTP struct {
	// waitingPage, where it is there, even if it is empty, has a browser that opens a page while
	// no server is up shown one that says that the service is waking and loads itself again
	// until it is up. Such a request wakes the service like any other, and waits for a quarter
	// of a second at most. It is a GET whose Accept names text/html first and which, where the
	// browser says so (Sec-Fetch-Mode and Sec-Fetch-Dest), opens a document. All others wait
	// for the server. By default browsers do, too.
	// +optional
	WaitingPage *WaitingPage `json:"waitingPage,omitempty"`

	// coldStartHeader adds the header "Cold-Start: true" to the response to a request that waited
	// for a server: the first final one to a client that was held. Nothing is added to what is
	// no plain HTTP/1, such as HTTP/2 and TLS, nor where the protocol changes, as with WebSocket.
	// By default the resolver adds nothing to what a server sends.
	// +optional
	ColdStartHeader bool `json:"coldStartHeader,omitempty"`
}

// WaitingPage is what a browser shows while a service wakes. Its texts are no HTML: all that
// stands in them is shown as it is.
type WaitingPage struct {
	// title is the page's title and heading; by default the Service's name and "is waking up".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Title string `json:"title,omitempty"`

	// message is the sentence below it, in which {elapsed} becomes the time since the wake, such
	// as 45s or 1m5s. By default asleep.wakingMotd, once the resolver knows since when the
	// service has been waking.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// HTTPProbeMethod is the method of a request that is answered while a service sleeps.
// +kubebuilder:validation:Enum=GET;HEAD;OPTIONS;POST
type HTTPProbeMethod string

// HTTPProbe is a request that is answered while the service sleeps, and its answer.
// +kubebuilder:validation:XValidation:rule="[has(self.path), has(self.pathPrefix), has(self.pathRegex)].exists_one(x, x)",message="a probe needs one of path, pathPrefix and pathRegex"
type HTTPProbe struct {
	// method is the request's method. GET answers HEAD as well.
	// +optional
	// +kubebuilder:default=GET
	Method HTTPProbeMethod `json:"method,omitempty"`

	// path is the request's path as it is sent, letter for letter, without what the request has
	// after a '?'.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^/[!$-;=@-Z_a-z~]*$')",message="path must start with '/' and have no spaces, '?' or '#'"
	Path string `json:"path,omitempty"`

	// pathPrefix, in path's place, is what the path begins with, up to a '/' or its end: /health
	// fits /health and /health/ready, and not /healthz. / fits any path.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^/[!$-;=@-Z_a-z~]*$')",message="pathPrefix must start with '/' and have no spaces, '?' or '#'"
	PathPrefix string `json:"pathPrefix,omitempty"`

	// pathRegex, in path's place, is a regular expression in RE2's syntax that fits some part of
	// the path; with ^ and $ around it, all of it. It fits no path of more than 1 KiB, and
	// nothing at all if it comes to more than 300 instructions with its repetitions written out,
	// as x{0,99} twice does. What no probe fits wakes the service.
	// +optional
	PathRegex HTTPRegex `json:"pathRegex,omitempty"`

	// queryParams are what the request's query must have, all of them. A parameter that it has
	// several times fits with one of its values.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	QueryParams []HTTPQueryParamMatch `json:"queryParams,omitempty"`

	// headers are what the request must have, all of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Headers []HTTPHeaderMatch `json:"headers,omitempty"`

	// response is the answer.
	// +optional
	// +kubebuilder:default={}
	Response HTTPProbeResponse `json:"response,omitempty"`
}

// HTTPHeaderMatch is a header that a request must have.
// +kubebuilder:validation:XValidation:rule="[has(self.value), has(self.prefix), has(self.regex)].exists_one(x, x)",message="a header to match needs one of value, prefix and regex"
type HTTPHeaderMatch struct {
	// name is the header's name, in lower or upper case.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-!#$%&*+.^_|~0-9A-Za-z]+$')",message="name must be a header's name, such as User-Agent"
	Name string `json:"name"`

	// value is the header's whole value, letter for letter.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]([ -~]*[!-~])?$')",message="value must be of visible ASCII characters, with spaces only in between"
	Value string `json:"value,omitempty"`

	// prefix is what the header's value begins with, letter for letter, such as kube-probe/ in
	// a User-Agent.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~][ -~]*$')",message="prefix must be of visible ASCII characters and spaces"
	Prefix string `json:"prefix,omitempty"`

	// regex is a regular expression in RE2's syntax that fits some part of the header's value;
	// with ^ and $ around it, all of it. It is bounded as pathRegex is.
	// +optional
	Regex HTTPRegex `json:"regex,omitempty"`
}

// HTTPProbeResponse is what a probe is answered.
// +kubebuilder:validation:XValidation:rule="!has(self.body) || !has(self.status) || !(self.status in [204, 205, 304])",message="a response with the status 204, 205 or 304 has no body; remove it"
type HTTPProbeResponse struct {
	// status is the status code.
	// +optional
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=200
	// +kubebuilder:validation:Maximum=599
	Status int32 `json:"status,omitempty"`

	// headers are sent beside Date, Content-Length, Connection and, where there is a body, the
	// Content-Type text/plain, which one of them may replace.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Headers []HTTPHeader `json:"headers,omitempty"`

	// body is the body, in UTF-8.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Body string `json:"body,omitempty"`
}

// HTTPHeader is a header of an answer.
type HTTPHeader struct {
	// name is the header's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-!#$%&*+.^_|~0-9A-Za-z]+$') && !(self.lowerAscii() in ['connection', 'content-length', 'date', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade'])",message="name must be a header's name, such as Content-Type, and none that says how the answer is sent"
	Name string `json:"name"`

	// value is the header's value.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]([ -~]*[!-~])?$')",message="value must be of visible ASCII characters, with spaces only in between"
	Value string `json:"value"`
}
