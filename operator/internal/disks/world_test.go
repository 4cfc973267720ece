package disks

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deletes notes with how many seconds of grace something is deleted.
type deletes struct {
	client.Client
	grace *[]int64
}

func (d *deletes) Delete(_ context.Context, _ client.Object, opts ...client.DeleteOption) error {
	var all client.DeleteOptions
	for _, o := range opts {
		o.ApplyToDelete(&all)
	}
	*d.grace = append(*d.grace, *all.GracePeriodSeconds)
	return nil
}
