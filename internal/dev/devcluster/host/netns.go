package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// NamespaceDir is where iproute2 keeps named network namespaces.
const NamespaceDir = "/run/netns"

// InNamespace calls f in a named network namespace. Sockets that f makes stay in it for good,
// so a connection may be used anywhere afterwards.
//
// f runs on an operating system thread of its own. What it starts with "go"
// runs outside of the namespace, and so does a lookup of a name, or a dial of
// one: dial addresses only.
func InNamespace(name string, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- onThread(name, f) }()
	return <-result
}

// onThread enters the namespace, calls f and goes back. A thread that can't go
// back stays locked, and the runtime ends it with its goroutine.
func onThread(name string, f func() error) error {
	runtime.LockOSThread()
	before, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer before.Close()
	wanted, err := os.Open(filepath.Join(NamespaceDir, name))
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open network namespace %s: %w", name, err)
	}
	defer wanted.Close()
	if err := joinNetwork(wanted); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", name, err)
	}
	err = f()
	if back := joinNetwork(before); back != nil {
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", name, back))
	}
	runtime.UnlockOSThread()
	return err
}
