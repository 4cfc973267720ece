package convert

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// document is an object of the input.
type document struct {
	// at is where it stands, such as "document 2" or "document 2, item 3".
	at string
	metav1.TypeMeta
	Metadata struct{ Namespace, Name string }
	text     []byte
}

// String names the document for its reader.
func (d *document) String() string {
	name := d.Metadata.Name
	if d.Metadata.Namespace != "" {
		name = d.Metadata.Namespace + "/" + name
	}
	return strings.TrimRight(fmt.Sprintf("%s, %s %s", d.at, d.Kind, name), ", ")
}

// result is what a conversion writes.
type result struct {
	out, errs io.Writer
	failed    bool
}

func (r *result) fail(format string, args ...any) {
	r.failed = true
	fmt.Fprintf(r.errs, format+"\n", args...)
}

// convert converts all ElastiServices of a text.
func (r *result) convert(text []byte) {
	documents := r.split(text)
	services := map[types.NamespacedName]*corev1.Service{}
	for i := range documents {
		d := &documents[i]
		if !isService(d) {
			continue
		}
		service := &corev1.Service{}
		if err := json.UnmarshalCaseSensitivePreserveInts(d.text, service); err == nil {
			services[types.NamespacedName{Namespace: d.Metadata.Namespace, Name: d.Metadata.Name}] = service
		}
	}
	found := 0
	for i := range documents {
		d := &documents[i]
		if group, _, _ := strings.Cut(d.APIVersion, "/"); d.Kind != elastiKind || group != elastiGroup {
			if !isService(d) {
				fmt.Fprintf(r.errs, "%s: passed over, it is no ElastiService\n", d)
			}
			continue
		}
		found++
		r.one(d, services)
	}
	if found == 0 {
		r.fail("the input has no ElastiService of the API group %s", elastiGroup)
	}
}

// isService reports whether a document is a Service, of which the ports' names are read.
func isService(d *document) bool { return d.Kind == "Service" && d.APIVersion == "v1" }

// one converts an ElastiService.
func (r *result) one(d *document, services map[types.NamespacedName]*corev1.Service) {
	es, notes, err := elasticService(d.text, services)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.fail("%s: %s", d, line)
		}
		return
	}
	body, err := yaml.Marshal(es)
	if err != nil {
		r.fail("%s: write the ElasticService: %v", d, err)
		return
	}
	var text bytes.Buffer
	text.WriteString("---\n")
	for _, note := range notes {
		// What is quoted in it may have several lines, which must not end the comment.
		note = strings.Join(strings.Fields(note), " ")
		fmt.Fprintf(&text, "# %s\n", note)
		fmt.Fprintf(r.errs, "%s: %s\n", d, note)
	}
	text.Write(body)
	if _, err := r.out.Write(text.Bytes()); err != nil {
		r.fail("%s: write the ElasticService: %v", d, err)
	}
}

// split takes a text apart into its objects. Those of a list, as kubectl writes it, count each.
func (r *result) split(text []byte) (all []document) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		at := fmt.Sprintf("document %d", n)
		if err != nil {
			r.fail("%s: read it: %v", at, err)
			return all
		}
		body, err := yaml.YAMLToJSON(part)
		if err != nil {
			r.fail("%s: it is no YAML: %v", at, err)
			n++
			continue
		}
		if string(body) == "null" {
			continue // a comment, or nothing between two lines of dashes
		}
		n++
		d, err := documentOf(at, body)
		if err != nil {
			r.fail("%v", err)
			continue
		}
		if !strings.HasSuffix(d.Kind, "List") {
			all = append(all, d)
			continue
		}
		var list struct {
			Items []runtime.RawExtension `json:"items"`
		}
		if err := json.UnmarshalCaseSensitivePreserveInts(body, &list); err != nil {
			r.fail("%s: read its items: %v", at, err)
		}
		for i := range list.Items {
			item, err := documentOf(fmt.Sprintf("%s, item %d", at, i+1), list.Items[i].Raw)
			if err != nil {
				r.fail("%v", err)
				continue
			}
			all = append(all, item)
		}
	}
}

func documentOf(at string, body []byte) (document, error) {
	d := document{at: at, text: body}
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(body, &head); err != nil {
		return d, fmt.Errorf("%s: it is no object of Kubernetes: %w", at, err)
	}
	d.TypeMeta, d.Metadata.Namespace, d.Metadata.Name = head.TypeMeta, head.Metadata.Namespace, head.Metadata.Name
	return d, nil
}
