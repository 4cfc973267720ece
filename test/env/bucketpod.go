package env

import (
	"context"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/test/env/bucket"
)

// bucketPort is where the service of buckets listens.
const bucketPort = 7070

// Bucket runs a real service of buckets in a namespace, with one bucket that a Secret lets in. It is
// gone with the namespace.
func (e *Env) Bucket(ctx context.Context, namespace string, progress io.Writer) (*v1alpha1.BackupBucket, error) {
	refs, err := e.Load(ctx, e.Repo, []images.Program{bucket.Program}, progress)
	if err != nil {
		return nil, err
	}
	const name, dir, worlds = "bucket", "/buckets", "worlds"
	credentials := bucket.NewCredentials()
	var environment []corev1.EnvVar
	for _, key := range []struct{ env, key string }{{"ROOT_ACCESS_KEY_ID", "accessKeyID"}, {"ROOT_SECRET_ACCESS_KEY", "secretAccessKey"}} {
		environment = append(environment, corev1.EnvVar{Name: key.env, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key.key,
		}}})
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	labels := map[string]string{"app": name}
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: name, Image: refs[bucket.Program.Image], ImagePullPolicy: corev1.PullNever,
				Args: bucket.Args(fmt.Sprintf(":%d", bucketPort), dir), Env: environment,
				VolumeMounts: []corev1.VolumeMount{{Name: "all", MountPath: dir}, {Name: worlds, MountPath: dir + "/" + worlds}},
			}},
			Volumes: []corev1.Volume{{Name: "all", VolumeSource: empty}, {Name: worlds, VolumeSource: empty}},
		}},
	}}
	if err := e.Client.Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{
		"accessKeyID": credentials.AccessKeyID, "secretAccessKey": credentials.SecretAccessKey,
	}}); err != nil {
		return nil, fmt.Errorf("create the bucket's Secret: %w", err)
	}
	if err := e.Client.Create(ctx, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Selector: labels, Ports: []corev1.ServicePort{{Port: bucketPort}},
	}}); err != nil {
		return nil, fmt.Errorf("create the bucket's Service: %w", err)
	}
	if err := e.Client.Create(ctx, deployment); err != nil {
		return nil, fmt.Errorf("create the bucket's Deployment: %w", err)
	}
	_, err = Wait(ctx, e, &appsv1.DeploymentList{}, client.ObjectKeyFromObject(deployment), "available", func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas > 0 })
	return &v1alpha1.BackupBucket{
		Endpoint: fmt.Sprintf("http://%s.%s.svc:%d", name, namespace, bucketPort), Name: worlds, Region: bucket.Region, Secret: name,
	}, err
}
