package manifests

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// stage is a step of an installation. What is in one needs nothing of a later
// one.
type stage int

const (
	stageNamespaces stage = iota
	stageDefinitions
	stageAccess
	stageSettings
	stageWorkloads
	stageObjects
)

var stages = map[string]stage{
	"Namespace":                stageNamespaces,
	"CustomResourceDefinition": stageDefinitions,
	"ServiceAccount":           stageAccess,
	"ClusterRole":              stageAccess,
	"Role":                     stageAccess,
	"ClusterRoleBinding":       stageAccess,
	"RoleBinding":              stageAccess,
	"Deployment":               stageWorkloads,
	"StatefulSet":              stageWorkloads,
	"DaemonSet":                stageWorkloads,
}

// builtin are the groups whose other kinds are settings: Services, ConfigMaps,
// disruption budgets. Objects of any other group may be of a kind that the same
// installation defines and that a workload of it has to look after.
var builtin = []string{"", "policy", "networking.k8s.io", "scheduling.k8s.io", "admissionregistration.k8s.io", "apiregistration.k8s.io"}

func stageOf(object *unstructured.Unstructured) stage {
	if s, ok := stages[object.GetKind()]; ok {
		return s
	}
	if slices.Contains(builtin, object.GroupVersionKind().Group) {
		return stageSettings
	}
	return stageObjects
}

// inOrder sorts objects by stage and leaves each stage as it is.
func inOrder(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.SortedStableFunc(slices.Values(objects), func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(stageOf(a), stageOf(b))
	})
}
