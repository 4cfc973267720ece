package host

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// IP runs one command of iproute2.
func IP(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// IPLines runs several commands of iproute2 in a namespace at once, or on the
// host when it is empty.
func IPLines(ctx context.Context, namespace string, lines []string) error {
	args := []string{"-batch", "-"}
	if namespace != "" {
		args = append([]string{"-netns", namespace}, args...)
	}
	cmd := exec.CommandContext(ctx, "ip", args...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("set up network %s: %w: %s", namespace, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// RemoveInterface removes an interface that may be gone already.
func RemoveInterface(ctx context.Context, name string) error {
	return unlessGone(IP(ctx, "link", "del", name), "Cannot find device")
}

// RemoveRoute removes a route that may be gone already.
func RemoveRoute(ctx context.Context, route string) error {
	args := append(routeFamily(route), "route", "del")
	return unlessGone(IP(ctx, append(args, strings.Fields(route)...)...), "No such process")
}

// unlessGone drops the error with which iproute2 says that there is nothing to
// remove.
func unlessGone(err error, message string) error {
	if err != nil && strings.Contains(err.Error(), message) {
		return nil
	}
	return err
}

func routeFamily(route string) []string {
	if strings.Contains(route, ":") {
		return []string{"-6"}
	}
	return []string{"-4"}
}
