package hosting

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

const (
	// filesWait is how long a call waits for the operator, which makes the Service of the files,
	// and filesLook how often is looked.
	filesWait = 5 * time.Second
	filesLook = 100 * time.Millisecond
)

// filesName is the name of the Service that leads to a server's files, and of the Secret with its users.
func filesName(server string) string { return server + "-files" }

// serves reports whether the operator serves a server's files, so that sftp is no port of its game.
func serves(s *v1alpha1.Server) bool { return s.Spec.Files != nil && portOf(&s.Spec, SFTP) < 0 }

// filesPort is the number by which a server's files are reached from outside. The first call makes it so.
func (h *Hosting) filesPort(ctx context.Context, id int64) (int32, error) {
	err := h.write(ctx, id, h.change, func(s *v1alpha1.Server) error {
		if s.Spec.Files == nil {
			return failf(NotFound, "port", "the files of server %d aren't served", id)
		}
		if t := &s.Spec.Files.Service.Type; *t == "" || *t == v1alpha1.GameServiceClusterIP {
			*t = v1alpha1.GameServiceNodePort
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	patience := time.NewTimer(filesWait)
	defer patience.Stop()
	ticker := time.NewTicker(filesLook)
	defer ticker.Stop()
	for {
		s, err := h.change(ctx, id)
		if err != nil {
			return 0, err
		}
		if number, err := h.filesNumber(ctx, h.Client, s); number != 0 || err != nil {
			return number, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for Service %s: %w", filesName(s.Name), ctx.Err())
		case <-patience.C:
			return 0, failf(Busy, "port", "the port of server %d's files is still being opened: send the same request again, and if that doesn't help look at the condition FilesServed of Server %s", id, s.Name)
		case <-ticker.C:
		}
	}
}

// filesNumber is the number by which a server's files are reached from outside; 0: they aren't.
func (h *Hosting) filesNumber(ctx context.Context, from client.Reader, s *v1alpha1.Server) (int32, error) {
	if !serves(s) || s.Spec.Files.Service.Type == "" || s.Spec.Files.Service.Type == v1alpha1.GameServiceClusterIP {
		return 0, nil
	}
	svc := &corev1.Service{}
	key := client.ObjectKey{Namespace: s.Namespace, Name: filesName(s.Name)}
	if err := from.Get(ctx, key, svc); apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("read Service %s: %w", key, err)
	}
	port := servicePort(svc, SFTP)
	if port == nil || !metav1.IsControlledBy(svc, s) || string(svc.Spec.Type) != string(s.Spec.Files.Service.Type) {
		return 0, nil
	}
	return outside(svc, *port), nil
}
