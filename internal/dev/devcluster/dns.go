package devcluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

const (
	dnsName = "coredns"
	// dnsPort is one that a process without capabilities may listen on.
	dnsPort = 1053
)

// corefile has no forward, and so no loop to look for: there is nowhere to
// forward to, and a name outside of the cluster is better refused at once than
// after a timeout.
const corefile = `.:1053 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
    }
    cache 5
    reload
    loadbalance
}
`

var dnsLabels = map[string]string{"k8s-app": "kube-dns"}

// deployDNS makes the cluster's DNS where every pod expects it.
func (c *Cluster) deployDNS(ctx context.Context, client kubernetes.Interface) error {
	meta := metav1.ObjectMeta{Name: dnsName, Namespace: metav1.NamespaceSystem, Labels: dnsLabels}
	system, options := metav1.NamespaceSystem, metav1.CreateOptions{}
	for _, create := range []func() error{
		func() error {
			_, err := client.CoreV1().ServiceAccounts(system).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, options)
			return err
		},
		func() error {
			_, err := client.RbacV1().ClusterRoles().Create(ctx, dnsRole(), options)
			return err
		},
		func() error {
			_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, dnsBinding(), options)
			return err
		},
		func() error {
			_, err := client.CoreV1().ConfigMaps(system).Create(ctx,
				&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"Corefile": corefile}}, options)
			return err
		},
		func() error {
			_, err := client.AppsV1().Deployments(system).Create(ctx, dnsDeployment(meta), options)
			return err
		},
		func() error {
			_, err := client.CoreV1().Services(system).Create(ctx, c.dnsService(), options)
			return err
		},
	} {
		if err := create(); err != nil {
			return fmt.Errorf("deploy the cluster's DNS: %w", err)
		}
	}
	return nil
}

func dnsRole() *rbacv1.ClusterRole {
	watch := []string{"list", "watch"}
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "system:" + dnsName},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services", "pods", "namespaces"}, Verbs: watch},
			{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: watch},
		},
	}
}

func dnsBinding() *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "system:" + dnsName},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:" + dnsName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: dnsName, Namespace: metav1.NamespaceSystem}},
	}
}

func dnsDeployment(meta metav1.ObjectMeta) *appsv1.Deployment {
	probe := func(path string, port int) *corev1.Probe {
		return &corev1.Probe{
			PeriodSeconds: 1,
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(port)}},
		}
	}
	liveness := probe("/health", 8080)
	liveness.PeriodSeconds, liveness.FailureThreshold = 10, 6
	return &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			// One a node, so that names resolve while a node is away.
			Replicas: new(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: dnsLabels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: dnsLabels},
				Spec: corev1.PodSpec{
					ServiceAccountName: dnsName,
					PriorityClassName:  "system-cluster-critical",
					DNSPolicy:          corev1.DNSDefault,
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector: &metav1.LabelSelector{MatchLabels: dnsLabels},
					}},
					Containers: []corev1.Container{{
						Name:            dnsName,
						Image:           corednsRef,
						ImagePullPolicy: corev1.PullIfNotPresent,
						Args:            []string{"-conf", "/etc/coredns/Corefile"},
						ReadinessProbe:  probe("/ready", 8181),
						LivenessProbe:   liveness,
						VolumeMounts:    []corev1.VolumeMount{{Name: "config", MountPath: "/etc/coredns", ReadOnly: true}},
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: new(false),
							ReadOnlyRootFilesystem:   new(true),
							RunAsNonRoot:             new(true),
							Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
					}},
					Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
						ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: dnsName}},
					}}},
				},
			},
		},
	}
}

func (c *Cluster) dnsService() *corev1.Service {
	port := func(name string, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: protocol, Port: 53, TargetPort: intstr.FromInt(dnsPort)}
	}
	var addrs []string
	for _, addr := range c.DNSAddrs() {
		addrs = append(addrs, addr.String())
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: metav1.NamespaceSystem, Labels: dnsLabels},
		Spec: corev1.ServiceSpec{
			Selector:       dnsLabels,
			ClusterIP:      addrs[0],
			ClusterIPs:     addrs,
			IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			Ports:          []corev1.ServicePort{port("dns", corev1.ProtocolUDP), port("dns-tcp", corev1.ProtocolTCP)},
		},
	}
}
