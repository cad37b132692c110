package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// controllerChecks need no node. They test the controllers and the scheduler alone.
var controllerChecks = []check{
	{name: "leases name the leaders", run: leaders},
	{name: "a certificate request is signed once it is approved", run: certificate},
	{name: "a Secret of a service account gets a token that works", run: legacyToken},
	{name: "an aggregated ClusterRole gets its rules", run: aggregation},
	{name: "a quota counts", run: quota},
	{name: "dependents of a custom resource are deleted with it", run: customGarbage},
	{name: "a claim is bound to a volume, and both are protected", run: claim},
	{name: "a pod that fits on no node gets an Event", run: unschedulable},
	{name: "a budget counts pods and refuses evictions", run: budget},
	{name: "claims of dynamic resources are created from their template", run: resourceClaim},
	{name: "EndpointSlices are mirrored from Endpoints", run: mirrored},
}

func accountReady(ctx context.Context, b *bench, namespace string) error {
	if _, err := b.set.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return err
	}
	ca, err := b.set.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	if err == nil && !strings.Contains(ca.Data["ca.crt"], "BEGIN CERTIFICATE") {
		err = fmt.Errorf("kube-root-ca.crt holds no certificate: %q", ca.Data["ca.crt"])
	}
	return err
}

func leaders(ctx context.Context, b *bench, _ string) error {
	return b.eventually(ctx, func() error {
		for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
			lease, err := b.set.CoordinationV1().Leases("kube-system").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
				return fmt.Errorf("lease %s has no holder", name)
			}
		}
		return nil
	})
}

// certificateRequest returns a request in PEM.
func certificateRequest() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "somebody"}}, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

func certificate(ctx context.Context, b *bench, namespace string) error {
	request, err := certificateRequest()
	if err != nil {
		return err
	}
	requests := b.set.CertificatesV1().CertificateSigningRequests()
	if _, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := b.kubectl(ctx, "", "certificate", "approve", namespace); err != nil {
		return err
	}
	return b.eventually(ctx, func() error {
		csr, err := requests.Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && len(csr.Status.Certificate) == 0 {
			err = fmt.Errorf("no certificate; conditions %v", csr.Status.Conditions)
		}
		return err
	})
}

func legacyToken(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, `
apiVersion: v1
kind: Secret
metadata: {name: token, annotations: {kubernetes.io/service-account.name: default}}
type: kubernetes.io/service-account-token
`); err != nil {
		return err
	}
	return b.eventually(ctx, func() error {
		secret, err := b.set.CoreV1().Secrets(namespace).Get(ctx, "token", metav1.GetOptions{})
		if err != nil {
			return err
		}
		token := string(secret.Data[corev1.ServiceAccountTokenKey])
		if token == "" || len(secret.Data[corev1.ServiceAccountRootCAKey]) == 0 {
			return fmt.Errorf("the Secret holds %d fields", len(secret.Data))
		}
		who, err := b.whoIs(ctx, token)
		if err == nil && who != "system:serviceaccount:"+namespace+":default" {
			err = fmt.Errorf("the token is %q's", who)
		}
		return err
	})
}

// whoIs asks the API server for the user of a token.
func (b *bench) whoIs(ctx context.Context, token string) (string, error) {
	set, err := kubernetes.NewForConfig(&rest.Config{Host: b.server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: b.keys.path("ca.crt")}})
	if err != nil {
		return "", err
	}
	review, err := set.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

func aggregation(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, "", strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: whole-NS}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {part-of: NS}}]}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: part-NS, labels: {part-of: NS}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
`, "NS", namespace)); err != nil {
		return err
	}
	return b.becomes(ctx, namespace, "clusterrole/whole-"+namespace, "{.rules[*].resources[*]}", "pods")
}

func quota(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, `
apiVersion: v1
kind: ResourceQuota
metadata: {name: q}
spec: {hard: {configmaps: "3", count/deployments.apps: "5"}}
`); err != nil {
		return err
	}
	// The ConfigMap with the CA.
	if err := b.becomes(ctx, namespace, "resourcequota/q", "{.status.used.configmaps}", "1"); err != nil {
		return err
	}
	if _, err := b.kubectl(ctx, "", "create", "configmap", "one", "-n", namespace); err != nil {
		return err
	}
	return b.becomes(ctx, namespace, "resourcequota/q", "{.status.used.configmaps}", "2")
}

func customGarbage(ctx context.Context, b *bench, namespace string) error {
	group := namespace + ".example.com"
	if err := b.apply(ctx, "", strings.ReplaceAll(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Boat, plural: boats, singular: boat}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, "GROUP", group)); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "crd/boats."+group, `{.status.conditions[?(@.type=="Established")].status}`, "True"); err != nil {
		return err
	}
	if err := b.eventually(ctx, func() error {
		return b.apply(ctx, namespace, "apiVersion: "+group+"/v1\nkind: Boat\nmetadata: {name: knarr}\n")
	}); err != nil {
		return err
	}
	uid, err := b.field(ctx, namespace, "boats."+group+"/knarr", "{.metadata.uid}")
	if err != nil {
		return err
	}
	if err := b.apply(ctx, namespace, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: cargo, ownerReferences: [{apiVersion: %s/v1, kind: Boat, name: knarr, uid: %s}]}
`, group, uid)); err != nil {
		return err
	}
	if _, err := b.kubectl(ctx, "", "delete", "-n", namespace, "boats."+group, "knarr"); err != nil {
		return err
	}
	if err := b.gone(ctx, namespace, "configmap/cargo"); err != nil {
		return err
	}
	// One object stays, for the deletion of the namespace.
	return b.apply(ctx, namespace, "apiVersion: "+group+"/v1\nkind: Boat\nmetadata: {name: drakkar}\n")
}

// gone waits until the object no longer exists.
func (b *bench) gone(ctx context.Context, namespace, object string) error {
	return b.eventually(ctx, func() error {
		out, err := b.kubectl(ctx, "", "get", "-n", namespace, object, "--ignore-not-found", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("%s is still there", object)
		}
		return err
	})
}

func volumes(namespace string, n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s-%[2]d}
spec: {capacity: {storage: 1Mi}, accessModes: [ReadWriteOnce], storageClassName: %[1]s, persistentVolumeReclaimPolicy: Retain, hostPath: {path: /tmp, type: Directory}}
---`, namespace, i)
	}
	return text.String()
}

func claim(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, volumes(namespace, 1)+`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {accessModes: [ReadWriteOnce], storageClassName: `+namespace+`, resources: {requests: {storage: 1Mi}}}
`); err != nil {
		return err
	}
	for object, wanted := range map[string][2]string{
		"pvc/c":                  {"{.status.phase} {.metadata.finalizers}", `Bound ["kubernetes.io/pvc-protection"]`},
		"pv/" + namespace + "-0": {"{.status.phase} {.metadata.finalizers}", `Bound ["kubernetes.io/pv-protection"]`},
	} {
		if err := b.becomes(ctx, namespace, object, wanted[0], wanted[1]); err != nil {
			return err
		}
	}
	if _, err := b.kubectl(ctx, "", "delete", "-n", namespace, "pvc", "c"); err != nil {
		return err
	}
	return b.becomes(ctx, namespace, "pv/"+namespace+"-0", "{.status.phase}", "Released")
}

func unschedulable(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, `
apiVersion: v1
kind: Pod
metadata: {name: lost}
spec: {nodeSelector: {there: is-none}, containers: [{name: a, image: x}]}
`); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pod/lost", `{.status.conditions[?(@.type=="PodScheduled")].reason}`, "Unschedulable"); err != nil {
		return err
	}
	return b.eventually(ctx, func() error {
		events, err := b.kubectl(ctx, "", "get", "events", "-n", namespace, "-o", `jsonpath={.items[?(@.reason=="FailedScheduling")].reportingComponent}`)
		if err == nil && !strings.Contains(events, "default-scheduler") {
			err = fmt.Errorf("no event FailedScheduling of default-scheduler: %q", events)
		}
		return err
	})
}

func budget(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: crew}
spec: {replicas: 2, selector: {matchLabels: {app: crew}}, template: {metadata: {labels: {app: crew}}, spec: {nodeSelector: {there: is-none}, containers: [{name: a, image: x}]}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: crew}
spec: {minAvailable: 2, selector: {matchLabels: {app: crew}}}
`); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pdb/crew", "{.status.expectedPods} {.status.desiredHealthy} {.status.disruptionsAllowed} {.status.conditions[0].reason}", "2 2 0 InsufficientPods"); err != nil {
		return err
	}
	// No node runs the pods, and pods that are not running may be evicted. So mark them as ready.
	pods, err := b.kubectl(ctx, "", "get", "pods", "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return err
	}
	for _, pod := range strings.Fields(pods) {
		const ready = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
		if _, err := b.kubectl(ctx, "", "patch", "-n", namespace, "pod", pod, "--subresource=status", "-p", ready); err != nil {
			return err
		}
	}
	if err := b.becomes(ctx, namespace, "pdb/crew", "{.status.currentHealthy} {.status.disruptionsAllowed}", "2 0"); err != nil {
		return err
	}
	victim, _, _ := strings.Cut(pods, " ")
	eviction := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q}}`, victim)
	_, err = b.kubectl(ctx, eviction, "create", "--raw", "/api/v1/namespaces/"+namespace+"/pods/"+victim+"/eviction", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "violate the pod's disruption budget") {
		return fmt.Errorf("an eviction that the budget does not allow: %w", cmp.Or(err, errors.New("it was allowed")))
	}
	return nil
}

func resourceClaim(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: none.example.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {resourceClaims: [{name: r, resourceClaimTemplateName: t}], containers: [{name: a, image: x, resources: {claims: [{name: r}]}}]}
`); err != nil {
		return err
	}
	name, err := b.claimOf(ctx, namespace)
	if err != nil {
		return err
	}
	return b.becomes(ctx, namespace, "pod/p", "{.status.resourceClaimStatuses[0].resourceClaimName}{'/'}{.status.conditions[0].reason}", name+"/Unschedulable")
}

// claimOf waits for the namespace's only claim and returns its name.
func (b *bench) claimOf(ctx context.Context, namespace string) (name string, err error) {
	err = b.eventually(ctx, func() error {
		list, err := b.set.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) == 0 {
			return errors.New("no ResourceClaim in the namespace")
		}
		if err == nil {
			name = list.Items[0].Name
		}
		return err
	})
	return name, err
}

func mirrored(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, `
apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: outside}
subsets: [{addresses: [{ip: 192.0.2.7}], ports: [{port: 80}]}]
`); err != nil {
		return err
	}
	return b.eventually(ctx, func() error {
		got, err := b.kubectl(ctx, "", "get", "endpointslices", "-n", namespace, "-l", "kubernetes.io/service-name=outside", "-o", "jsonpath={.items[*].endpoints[*].addresses[*]}")
		if err == nil && got != "192.0.2.7" {
			err = fmt.Errorf("the slices hold %q", got)
		}
		return err
	})
}

// namespacesEnd deletes the namespaces of the checks.
func (b *bench) namespacesEnd(ctx context.Context, n int) error {
	for i := range n {
		if err := b.set.CoreV1().Namespaces().Delete(ctx, fmt.Sprintf("check-%d", i), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return b.eventually(ctx, func() error {
		list, err := b.set.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, ns := range list.Items {
			if strings.HasPrefix(ns.Name, "check-") {
				return fmt.Errorf("%s is still there: %v", ns.Name, ns.Status.Conditions)
			}
		}
		return nil
	})
}
