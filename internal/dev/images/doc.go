// Package images builds container images out of files of this machine,
// without a container engine and without a registry: static Go binaries, and
// programs of the distribution together with the shared libraries they load.
//
// It owns the shape of an image and its archive. The same files give the same
// digest, whenever and wherever they are built. It neither pulls nor pushes.
package images
