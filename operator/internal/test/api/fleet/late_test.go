package fleet_test

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// late lets something happen before each write.
type late struct {
	client.Client
	before func()
}

// Patch implements client.Writer.
func (l *late) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	l.before()
	return l.Client.Patch(ctx, o, p, opts...)
}

// Delete implements client.Writer.
func (l *late) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	l.before()
	return l.Client.Delete(ctx, o, opts...)
}
