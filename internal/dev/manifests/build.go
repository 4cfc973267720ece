package manifests

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Images are full image references by the last element of an image's name:
// "dormouse-operator" stands for registry.example/games/dormouse-operator:1.0 as
// well as for dormouse-operator:dev.
type Images map[string]string

// Build builds the overlay in dir as kubectl kustomize does, and then replaces
// images. An image that no object has is an error.
func Build(dir string, images Images) ([]*unstructured.Unstructured, error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", dir, err)
	}
	objects := make([]*unstructured.Unstructured, 0, resources.Size())
	for _, resource := range resources.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("build %s: write %s: %w", dir, resource.CurId(), err)
		}
		// This package, unlike others, reads whole numbers as such.
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			return nil, fmt.Errorf("build %s: read %s: %w", dir, resource.CurId(), err)
		}
		objects = append(objects, object)
	}
	if err := images.replaceIn(objects); err != nil {
		return nil, fmt.Errorf("replace images of %s: %w", dir, err)
	}
	return objects, nil
}

func (images Images) replaceIn(objects []*unstructured.Unstructured) error {
	unused := maps.Clone(images)
	for _, object := range objects {
		for _, where := range [][]string{
			{"spec", "template", "spec", "containers"},
			{"spec", "template", "spec", "initContainers"},
			{"template", "spec", "containers"}, // a PodTemplate's
		} {
			containers, found, err := unstructured.NestedSlice(object.Object, where...)
			if !found || err != nil {
				continue // Not a workload.
			}
			for _, c := range containers {
				container, ok := c.(map[string]any)
				if !ok {
					continue
				}
				image, _ := container["image"].(string)
				if ref, ok := images[shortName(image)]; ok {
					container["image"] = ref
					delete(unused, shortName(image))
				}
			}
			if err := unstructured.SetNestedSlice(object.Object, containers, where...); err != nil {
				return fmt.Errorf("set images of %s: %w", describe(object), err)
			}
		}
	}
	if len(unused) > 0 {
		return fmt.Errorf("no container has the image %s", strings.Join(slices.Sorted(maps.Keys(unused)), " or "))
	}
	return nil
}

// shortName is the last element of an image's name, without tag and digest.
func shortName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(path.Base(image), ":")
	return name
}

// describe names an object as kubectl does.
func describe(object *unstructured.Unstructured) string {
	name := strings.ToLower(object.GetKind()) + "/" + object.GetName()
	if object.GetNamespace() != "" {
		name += " in " + object.GetNamespace()
	}
	return name
}
