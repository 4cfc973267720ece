package gameserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/test/api/fixture"
)

const (
	// startTimeout bounds what happens before the first test.
	startTimeout = 2 * time.Minute
	// promptly is for what happens at once, on a machine that is slow.
	promptly = 15 * time.Second
)

// environment is two replicas of the operator before a real API server.
type environment struct {
	// cleanup outlives each test.
	cleanup context.Context

	config    *rest.Config
	client    client.WithWatch
	operators []*operator
}

// operator is one replica's process, and its Pod as the API server knows it.
type operator struct {
	fixture.Operator
	pod *corev1.Pod
}

func startEnvironment(ctx context.Context, config *rest.Config, binary string) (*environment, error) {
	scheme, err := fixture.Scheme()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	e := &environment{cleanup: ctx, config: config}
	if e.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	ready, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := fixture.Install(ready, e.client, "namespace", "rbac", "sidecar"); err != nil {
		return nil, err
	}
	// All replicas answer on one port, as pods do.
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.2:0")
	if err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	if err := ln.Close(); err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	for i := range 2 {
		o, err := e.startOperator(ready, ctx, binary, fmt.Sprintf("operator-%d", i), fmt.Sprintf("127.0.0.%d", 2+i), port)
		if err != nil {
			return nil, errors.Join(err, e.stop(true))
		}
		e.operators = append(e.operators, o)
	}
	for _, o := range e.operators {
		if err := o.WaitReady(ready); err != nil {
			return nil, errors.Join(err, e.stop(true))
		}
	}
	return e, nil
}

// startOperator starts a replica, which lives as long as life.
func (e *environment) startOperator(ctx, life context.Context, binary, name, ip string, port int) (*operator, error) {
	dir := filepath.Join(filepath.Dir(binary), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the operator's directory: %w", err)
	}
	pod, err := fixture.RunningPod(ctx, e.client, name, map[string]string{fixture.NameLabel: fixture.OperatorAccount}, fixture.OperatorAccount, "node-1", ip)
	if err != nil {
		return nil, err
	}
	access, err := fixture.WriteAccess(ctx, e.config, e.client, dir, pod)
	if err != nil {
		return nil, err
	}
	o := &operator{pod: pod, Operator: fixture.Operator{
		Binary: binary, Access: access, Address: fmt.Sprintf("%s:%d", ip, port), PodName: name, LogFile: filepath.Join(dir, "log"),
	}}
	return o, o.Start(life)
}

func (e *environment) stop(failed bool) error {
	var errs []error
	for _, o := range e.operators {
		errs = append(errs, o.Stop())
	}
	for _, o := range e.operators {
		errs = append(errs, o.Check(failed))
	}
	return errors.Join(errs...)
}
