// Command volume makes the directory of a volume, or removes it. The local-path provisioner runs it
// in a pod on the node that the volume is for:
//
//	volume -p PATH -s BYTES -m MODE -a create|delete
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	path := flag.String("p", "", "the directory")
	_ = flag.Int64("s", 0, "how large it is asked to be, which nothing enforces")
	_ = flag.String("m", "", "the volume's mode, which makes no difference")
	action := flag.String("a", "", "create or delete")
	flag.Parse()
	if err := do(*action, *path); err != nil {
		fmt.Fprintln(os.Stderr, "volume:", err)
		os.Exit(1)
	}
}

func do(action, path string) error {
	switch action {
	case "create":
		if err := os.MkdirAll(path, 0o777); err != nil {
			return fmt.Errorf("make the volume: %w", err)
		}
		// Whoever the pod runs as may write to it.
		if err := os.Chmod(path, 0o777); err != nil {
			return fmt.Errorf("open the volume: %w", err)
		}
		return nil
	case "delete":
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove the volume: %w", err)
		}
		return nil
	}
	return fmt.Errorf("the action %q is neither create nor delete", action)
}
