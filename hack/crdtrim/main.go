// Command crdtrim takes Kubernetes' own descriptions of Pods out of the custom
// resource definitions: they are most of the text, and with them a definition
// is too large for the annotation that "kubectl apply" keeps on it. What the API
// server checks stays as it is.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crdtrim:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("crdtrim", flag.ContinueOnError)
	definitions := flags.String("crds", "config/crd/bases", "directory of the definitions, which are changed in place")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	files, err := filepath.Glob(filepath.Join(*definitions, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("find definitions in %s: %w", *definitions, errors.Join(err, os.ErrNotExist))
	}
	for _, file := range files {
		if err := trim(file); err != nil {
			return fmt.Errorf("trim %s: %w", file, err)
		}
	}
	return nil
}

func trim(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	var definition map[string]any
	if err := yaml.Unmarshal(content, &definition); err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	if !walk(definition) {
		return nil
	}
	if content, err = yaml.Marshal(definition); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if err := os.WriteFile(file, append([]byte("---\n"), content...), 0o644); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// walk empties each Pod template below a node of a schema, and takes out the
// regular expression of each quantity that a rule of its own checks: who writes
// 10GB is to read the rule's message. It says whether there was anything.
func walk(node any) bool {
	found := false
	switch node := node.(type) {
	case map[string]any:
		if _, checked := node["x-kubernetes-validations"]; checked && node["x-kubernetes-int-or-string"] == true && node["pattern"] != nil {
			delete(node, "pattern")
			found = true
		}
		for _, child := range node {
			if pod := podTemplate(child); pod != nil {
				for _, part := range pod {
					strip(part)
				}
				found = true
			} else if walk(child) {
				found = true
			}
		}
	case []any:
		for _, child := range node {
			found = walk(child) || found
		}
	}
	return found
}

// podTemplate is the properties of a schema if it is that of a Pod template.
func podTemplate(node any) map[string]any {
	properties := propertiesOf(node)
	if _, ok := propertiesOf(properties["spec"])["containers"]; !ok {
		return nil
	}
	return properties
}

func propertiesOf(node any) map[string]any {
	schema, _ := node.(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	return properties
}

// strip takes the descriptions out of a schema.
func strip(node any) {
	schema, ok := node.(map[string]any)
	if !ok {
		return
	}
	delete(schema, "description")
	for _, property := range propertiesOf(node) {
		strip(property)
	}
	strip(schema["items"])
	strip(schema["additionalProperties"])
}
