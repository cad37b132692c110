package run

import (
	"context"
	"crypto/x509"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/network/peers"
	"github.com/knarr-project/knarr/internal/servers"
	"github.com/knarr-project/knarr/knarrtest"
)

// reader tries reads with one identity.
type reader struct {
	t      *testing.T
	who    string
	client dynamic.Interface
}

func (r reader) in(resource, namespace string) dynamic.ResourceInterface {
	gvr, _ := schema.ParseResourceArg(resource)
	res := r.client.Resource(*gvr)
	if namespace == "" {
		return res
	}
	return res.Namespace(namespace)
}

// wants checks whether a read is allowed. name is empty for a list and a watch.
func (r reader) wants(allowed bool, resource, namespace, name string, opts metav1.ListOptions) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	check := func(verb string, err error) {
		r.t.Helper()
		if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
			r.t.Errorf("%s: %s %s %s/%s %+v: %v, want allowed=%t", r.who, verb, resource, namespace, name, opts, err, allowed)
		}
	}
	if name != "" {
		_, err := r.in(resource, namespace).Get(ctx, name, metav1.GetOptions{})
		check("get", err)
		return
	}
	_, err := r.in(resource, namespace).List(ctx, opts)
	check("list", err)
	w, err := r.in(resource, namespace).Watch(ctx, opts)
	check("watch", err)
	if err == nil {
		w.Stop()
	}
}

func readerOf(t *testing.T, who string, config *rest.Config) reader {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return reader{t, who, c}
}

func mustCreate[T client.Object](t *testing.T, c client.Interface, obj T) T {
	t.Helper()
	made, err := client.Create(t.Context(), c, obj)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// A node's certificate reads what belongs to its pods. The account of its other parts reads
// addresses, and no pods at all.
func TestANodeReadsItsOwnPodsOnly(t *testing.T) {
	cluster := knarrtest.Start(t, knarrtest.WithNodes(2))
	admin, err := client.Remote(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"0", "1"} {
		mustCreate(t, admin, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret-" + at}})
		mustCreate(t, admin, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "map-" + at}})
		mustCreate(t, admin, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + at}, Spec: corev1.PodSpec{
			NodeName: "node-" + at,
			Containers: []corev1.Container{{Name: "c", Image: "i", EnvFrom: []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "secret-" + at}}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "map-" + at}}},
			}}},
		}})
	}
	mustCreate(t, admin, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}},
	}})

	kubelet := cluster.As("system:node:node-0", auth.GroupNodes)
	node := readerOf(t, "the node", kubelet)
	all := metav1.ListOptions{}
	own := metav1.ListOptions{FieldSelector: "spec.nodeName=node-0"}
	node.wants(true, "pods.v1.", "", "", own)
	node.wants(true, "pods.v1.", "default", "pod-0", all)
	node.wants(true, "secrets.v1.", "default", "secret-0", all)
	node.wants(true, "configmaps.v1.", "default", "map-0", all)
	node.wants(true, "configmaps.v1.", "kube-system", "knarr-cluster", all)
	node.wants(true, "nodes.v1.", "", "node-0", all)
	node.wants(true, "services.v1.", "", "", all)
	for _, resource := range []string{
		"pods.v1.", "nodes.v1.", "namespaces.v1.", "endpoints.v1.", "secrets.v1.", "configmaps.v1.", "persistentvolumes.v1.", "serviceaccounts.v1.",
		"endpointslices.v1.discovery.k8s.io", "networkpolicies.v1.networking.k8s.io", "servicecidrs.v1.networking.k8s.io", "leases.v1.coordination.k8s.io",
	} {
		node.wants(false, resource, "", "", all)
	}
	node.wants(false, "pods.v1.", "", "", metav1.ListOptions{FieldSelector: "spec.nodeName=node-1"})
	node.wants(false, "pods.v1.", "default", "", all)
	node.wants(false, "pods.v1.", "default", "pod-1", all)
	node.wants(false, "secrets.v1.", "default", "secret-1", all)
	node.wants(false, "configmaps.v1.", "default", "map-1", all)
	node.wants(false, "nodes.v1.", "", "node-1", all)
	node.wants(false, "persistentvolumes.v1.", "", "", metav1.ListOptions{LabelSelector: "local.knarr.dev/node=node-0"})

	c, err := client.Remote(kubelet)
	if err != nil {
		t.Fatal(err)
	}
	if !offersAccount(t.Context(), c) {
		t.Error("the server does not offer the account")
	}
	stranger, err := client.Remote(cluster.As("somebody"))
	if err != nil {
		t.Fatal(err)
	}
	if offersAccount(t.Context(), stranger) {
		t.Error("the server offers the account to others than nodes")
	}

	cfg := config.Default()
	cfg.NodeName = "node-0"
	j := &joined{cfg: &cfg, log: slog.Default(), server: kubelet.Host, ca: kubelet.CAData}
	roots, err := servers.Roots(j.ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := servers.NewPool(servers.Options{Given: servers.Addresses(kubelet.Host), Log: j.log})
	j.parts = servers.NewTransport(pool, func() *x509.CertPool { return roots }, nil)
	config := j.partsConfig(t.Context(), c)
	parts := readerOf(t, "the node's parts", config)
	eventually(t, "the parts get a token", func() error {
		_, err := parts.in("nodes.v1.", "").List(t.Context(), all)
		return err
	})
	for _, resource := range []string{
		"nodes.v1.", "namespaces.v1.", "services.v1.", "endpointslices.v1.discovery.k8s.io", "networkpolicies.v1.networking.k8s.io",
	} {
		parts.wants(true, resource, "", "", all)
	}
	parts.wants(true, "persistentvolumes.v1.", "", "", metav1.ListOptions{LabelSelector: "local.knarr.dev/node=node-0"})
	parts.wants(false, "persistentvolumes.v1.", "", "", metav1.ListOptions{LabelSelector: "local.knarr.dev/node=node-1"})
	for _, resource := range []string{"pods.v1.", "secrets.v1.", "configmaps.v1.", "persistentvolumes.v1.", "endpoints.v1.", "serviceaccounts.v1."} {
		parts.wants(false, resource, "", "", all)
	}
	parts.wants(false, "pods.v1.", "", "", own)
	parts.wants(false, "pods.v1.", "default", "pod-0", all)
	eventually(t, "the policy's peers are published", func() error {
		g, _ := peers.OfPeer("default", &networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}})
		_, err := parts.client.Resource(peers.Resource).Get(t.Context(), g.ID()+peers.LastSuffix, metav1.GetOptions{})
		return err
	})
	node.wants(false, "policypeers.v1alpha1.knarr.dev", "", "", all)

	// A node agent that runs alone uses the account if its own identity does not suffice.
	for who, c := range map[string]struct {
		own  client.Interface
		want client.Interface
	}{"node": {c, stranger}, "admin": {admin, admin}, "somebody": {stranger, stranger}} {
		alone := &chosen{Interface: c.own, parts: stranger, log: slog.Default()}
		if got, err := alone.choose(t.Context()); err != nil || got != c.want {
			t.Errorf("%s: the pod network has another identity than wanted (error %v)", who, err)
		}
	}

	// Writes are limited to the node's part of cluster DNS.
	slice := func(node string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns-" + node, Labels: map[string]string{discoveryv1.LabelServiceName: "kube-dns"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.1"}, NodeName: &node, Hints: &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: node}}}}},
		}
	}
	writer, err := client.Remote(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), c, slice("node-0")); !apierrors.IsForbidden(err) {
		t.Errorf("the node agent writes the node's part of cluster DNS: %v", err)
	}
	if _, err := client.Create(t.Context(), writer, slice("node-1")); !apierrors.IsForbidden(err) {
		t.Errorf("the parts of a node write another node's part of cluster DNS: %v", err)
	}
	mustCreate(t, writer, slice("node-0"))
	for _, resource := range []string{"pods.v1.", "secrets.v1.", "configmaps.v1."} {
		gvr, _ := schema.ParseResourceArg(resource)
		o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}}}
		if _, err := parts.client.Resource(*gvr).Namespace("kube-system").Create(t.Context(), o, metav1.CreateOptions{}); err == nil {
			t.Errorf("the parts of a node create %s", resource)
		}
	}

	// A token ends with its Node. The next one is for the new Node of the name.
	if err := client.Delete[*corev1.Node](t.Context(), admin, "", "node-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), admin, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	eventually(t, "the parts get a new token", func() error {
		_, err := parts.in("nodes.v1.", "").List(t.Context(), all)
		return err
	})
}
