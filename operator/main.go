// Command operator runs Dormouse's controllers and its wake endpoint.
package main

import (
	"context"
	"fmt"
	"os"
	_ "time/tzdata" // the image has no time zones of its own, and schedules name some

	ctrl "sigs.k8s.io/controller-runtime"

	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/operator/internal/convert"
	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/restapi"
	"dormouse.dev/dormouse/operator/internal/setup"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "convert" {
		os.Exit(convert.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "api" {
		os.Exit(api(os.Args[2:]))
	}
	o, err := options.Parse(os.Args[1:])
	if err != nil {
		os.Exit(program.Misused(os.Stderr, err))
	}
	os.Exit(program.Main(program.Program{
		Name: "operator",
		Logs: program.Logs{Level: o.LogLevel(), Sampled: true},
		Run: func(ctx context.Context, p program.Process) error {
			ctrl.SetLogger(p.Log)
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("find the API server: %w", err)
			}
			return setup.Run(ctx, p, config, o)
		},
	}))
}

// api runs the REST API.
func api(args []string) int {
	o, err := restapi.ParseOptions(args)
	if err != nil {
		return program.Misused(os.Stderr, err)
	}
	return program.Main(program.Program{
		Name: "api",
		Logs: program.Logs{Level: o.LogLevel(), Sampled: true},
		Run: func(ctx context.Context, p program.Process) error {
			ctrl.SetLogger(p.Log)
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("find the API server: %w", err)
			}
			scheme, err := setup.Scheme()
			if err != nil {
				return err
			}
			return restapi.Run(ctx, p, config, scheme, o)
		},
	})
}
