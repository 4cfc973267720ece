// Package manifests builds a kustomize overlay and brings its objects into a
// cluster and out of it again, in an order that works and with word of how far it
// is. It doesn't know what the objects are for.
package manifests
