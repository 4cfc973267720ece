// Command deploy builds a kustomize overlay and brings it into the cluster of the
// current kubeconfig, out of it, or onto the standard output. It is what the
// Makefile's deploy and undeploy run.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dormouse.dev/dormouse/internal/dev/manifests"
)

// owner is whose fields the applied ones are.
const owner = "dormouse-deploy"

const usage = `usage: deploy [flags] COMMAND

commands:
  apply   bring the overlay in and wait until its Deployments are available
  delete  say what it removes and ask; then remove its users' objects, and then the overlay
  print   show the overlay

flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
}

type options struct {
	overlay, kubeconfig, context string
	timeout                      time.Duration
	yes                          bool
	images                       manifests.Images
}

func run(ctx context.Context, args []string) error {
	o := options{images: manifests.Images{}}
	flags := flag.NewFlagSet("deploy", flag.ContinueOnError)
	flags.StringVar(&o.overlay, "overlay", "config/default", "directory of the kustomize overlay")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty goes by $KUBECONFIG and kubectl's default")
	flags.StringVar(&o.context, "context", "", "context in the kubeconfig; empty is the current one")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "time for all of it")
	flags.BoolVar(&o.yes, "yes", false, "delete without asking")
	flags.Func("image", "`name=reference` of an image to use instead; may be repeated", o.setImage)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("want one of apply, delete and print, got %d arguments", flags.NArg())
	}
	return o.do(ctx, flags.Arg(0))
}

func (o options) setImage(value string) error {
	name, ref, ok := strings.Cut(value, "=")
	if !ok || name == "" || ref == "" {
		return fmt.Errorf("want NAME=REFERENCE, such as dormouse-operator=registry.example/operator:1")
	}
	o.images[name] = ref
	return nil
}

func (o options) do(ctx context.Context, verb string) error {
	objects, err := manifests.Build(o.overlay, o.images)
	if err != nil {
		return err
	}
	if verb == "print" {
		return printAll(objects)
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	if verb == "delete" && !o.yes {
		if err := o.confirm(ctx, c, objects); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	progress := func(line string) { fmt.Println(line) }
	switch verb {
	case "apply":
		if err := manifests.Apply(ctx, c, owner, objects, progress); err != nil {
			return err
		}
		return manifests.WaitAvailable(ctx, c, objects, progress)
	case "delete":
		return remove(ctx, c, objects, progress)
	default:
		return fmt.Errorf("want one of apply, delete and print, got %q", verb)
	}
}

// confirm says what a deletion removes, and asks whether it may.
func (o options) confirm(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	users, err := manifests.Users(ctx, c, objects)
	if err != nil {
		return err
	}
	fmt.Print(warning(o.overlay, users))
	return agreed(ctx, os.Stdin)
}

// agreed waits for the answer yes, or until it is interrupted.
func agreed(ctx context.Context, in io.Reader) error {
	answer := make(chan string, 1)
	go func() {
		// Whatever was read before an error is the answer.
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		if strings.TrimSpace(line) == "yes" {
			return nil
		}
	case <-ctx.Done():
		fmt.Println()
	}
	return errors.New("nothing was deleted: answer yes, or use --yes")
}

// warning says what goes with an overlay, by kind.
func warning(overlay string, users []*unstructured.Unstructured) string {
	kinds := map[string]map[string]int{}
	for _, u := range users {
		if kinds[u.GetKind()] == nil {
			kinds[u.GetKind()] = map[string]int{}
		}
		kinds[u.GetKind()][u.GetNamespace()]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "This removes what %s has in the cluster", overlay)
	if len(users) == 0 {
		b.WriteString(". There is no object of its kinds.\n")
	} else {
		b.WriteString(", and every object of its kinds:\n")
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		all := 0
		for _, n := range kinds[kind] {
			all += n
		}
		fmt.Fprintf(&b, "  %d of kind %s, in %s\n", all, kind, strings.Join(slices.Sorted(maps.Keys(kinds[kind])), ", "))
	}
	if len(users) > 0 {
		b.WriteString("Workloads that ElasticServices name are left, and awake. The games of Servers, Fleets and GameTypes end, once nobody plays there.\n")
	}
	if kinds["Backup"] != nil {
		b.WriteString("The archives and VolumeSnapshots of Backups stay.\n")
	}
	b.WriteString("Type yes to go on: ")
	return b.String()
}

func printAll(objects []*unstructured.Unstructured) error {
	for i, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("write %s: %w", object.GetName(), err)
		}
		if i > 0 {
			fmt.Println("---")
		}
		fmt.Print(string(text))
	}
	return nil
}

func (o options) client() (client.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	// The API server shares itself out: by default five calls a second would be made.
	config.QPS = -1
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return c, nil
}
