package elasticservice_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	// podName is what an operator's Pod is called.
	podName = "operator-pod"
	// stopTimeout is how long an operator has to end by itself.
	stopTimeout = 15 * time.Second
	// shownOfLog is how much of a log's end a failure shows.
	shownOfLog = 64 << 10
)

// operator is one replica's process.
type operator struct {
	binary, kubeconfig, tokenFile, address, logFile, sentryDSN string

	process *exec.Cmd
	ended   chan error
}

// start starts the process. Its log goes on where that of the last one ended.
func (o *operator) start(ctx context.Context) error {
	log, err := os.OpenFile(o.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the operator's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	o.process = exec.CommandContext(ctx, o.binary,
		"--listen="+o.address, "--leader-elect", fmt.Sprintf("--resolver-port=%d", resolverPort),
		"--resolver-selector="+resolverLabel+"="+resolverApp, "--resolver-service-account="+resolverAccount,
		"--token-file="+o.tokenFile)
	o.process.Env = append(os.Environ(), "KUBECONFIG="+o.kubeconfig, "POD_NAMESPACE="+systemNamespace,
		"POD_NAME="+podName, "SENTRY_DSN="+o.sentryDSN)
	o.process.Stdout, o.process.Stderr = log, log
	if err := o.process.Start(); err != nil {
		return fmt.Errorf("start the operator: %w", err)
	}
	o.ended = make(chan error, 1)
	go func(p *exec.Cmd, ended chan<- error) { ended <- p.Wait() }(o.process, o.ended)
	return nil
}

// waitReady waits until /readyz answers 200.
func (o *operator) waitReady(ctx context.Context) error {
	return poll(ctx, func() error {
		select {
		case err := <-o.ended:
			o.ended <- err
			return fatal{fmt.Errorf("the operator ended: %w", err)}
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.address+"/readyz", nil)
		if err != nil {
			return fatal{err}
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("ask the operator whether it is ready: %w", err)
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("the operator at %s is not ready: %s", o.address, res.Status)
		}
		return nil
	})
}

// kill ends the process as a lost node would.
func (o *operator) kill() error {
	if err := o.process.Process.Kill(); err != nil {
		return fmt.Errorf("kill the operator: %w", err)
	}
	err := <-o.ended
	o.process = nil
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// stop ends the process as Kubernetes does.
func (o *operator) stop() error {
	if o.process == nil {
		return nil
	}
	if err := o.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the operator: %w", err)
	}
	select {
	case err := <-o.ended:
		o.process = nil
		if err != nil {
			return fmt.Errorf("the operator at %s ended: %w", o.address, err)
		}
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("the operator at %s didn't end within %s of SIGTERM", o.address, stopTimeout), o.kill())
	}
}

// judge reads the log: it must tell of no data race, no panic and no token, and
// is shown when something failed.
func (o *operator) judge(failed bool) error {
	log, err := os.ReadFile(o.logFile)
	if err != nil {
		return fmt.Errorf("read the operator's log: %w", err)
	}
	var errs []error
	for text, what := range map[string]string{
		"WARNING: DATA RACE": "has a data race",
		"panic":              "panicked",
		"is forbidden: User": "lacks a right that its role should give",
		"eyJ":                "logs a token",
	} {
		if bytes.Contains(log, []byte(text)) {
			errs = append(errs, fmt.Errorf("the operator at %s %s: its log has %q", o.address, what, text))
		}
	}
	if failed || len(errs) > 0 {
		tail := log[max(0, len(log)-shownOfLog):]
		fmt.Fprintf(os.Stderr, "--- log of the operator at %s, its end ---\n%s\n--- end of the log ---\n",
			o.address, strings.TrimSpace(string(tail)))
	}
	return errors.Join(errs...)
}
