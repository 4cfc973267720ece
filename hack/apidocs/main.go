// Command apidocs writes docs/api.md from the custom resource definitions, so that
// what users read is what the API server checks.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "apidocs:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("apidocs", flag.ContinueOnError)
	definitions := flags.String("crds", "config/crd/bases", "directory of the definitions")
	output := flags.String("output", "docs/api.md", "file to write")
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
	var text strings.Builder
	text.WriteString(preamble)
	for _, file := range files {
		definition, err := read(file)
		if err != nil {
			return err
		}
		for i := range definition.Spec.Versions {
			writeKind(&text, definition, &definition.Spec.Versions[i])
		}
	}
	if err := os.WriteFile(*output, []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func read(file string) (*apiextensionsv1.CustomResourceDefinition, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read definition: %w", err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(content, &definition); err != nil {
		return nil, fmt.Errorf("read definition %s: %w", file, err)
	}
	return &definition, nil
}
