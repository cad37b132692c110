package why

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/insight/why"
	"github.com/knarr-project/knarr/knarrtest"
)

// broken is a cluster on which situations are made.
type broken struct {
	t      *testing.T
	config *rest.Config
	client dynamic.Interface
	typed  kubernetes.Interface

	authorities authorities // of the situation at hand
}

func startCluster(t *testing.T, nodes int) *broken {
	t.Helper()
	return brokenOf(t, knarrtest.Start(t, knarrtest.WithNodes(nodes), knarrtest.WithFate(fate), knarrtest.WithFlags("--node-monitor-grace-period=1h")))
}

func brokenOf(t *testing.T, c *knarrtest.Cluster) *broken {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return &broken{t: t, config: c.Config(), client: client, typed: typed}
}

// fate reads a pod's fate from its annotation: "exit N" or "unready".
func fate(pod *corev1.Pod) knarrtest.Fate {
	what, code, _ := strings.Cut(pod.Annotations["fate"], " ")
	switch what {
	case "exit":
		n, _ := strconv.ParseInt(code, 10, 32)
		return knarrtest.Fate{Ends: true, ExitCode: int32(n)}
	case "unready":
		return knarrtest.Fate{Unready: true}
	}
	return knarrtest.Fate{}
}

// manualNode is a Node without a node agent: pods there keep the status of the situation.
const manualNode = "kind: Node\nmetadata: {name: manual}\nspec: {unschedulable: true}\nstatus: {conditions: [{type: Ready, status: \"True\"}]}"

// build makes a situation in a namespace.
func (b *broken) build(ctx context.Context, s *situation, namespace string) {
	b.t.Helper()
	now := time.Now().UTC()
	certificates := newAuthorities(b.t)
	fill := strings.NewReplacer("CABUNDLE", certificates.bundle(0), "OTHERBUNDLE", certificates.bundle(1), "OLDBUNDLE", certificates.bundle(2),
		"NS", namespace, "MICROTIME", now.Format(metav1.RFC3339Micro), "TIME", now.Format(time.RFC3339))
	b.authorities = certificates
	for _, step := range s.first {
		b.step(ctx, fill.Replace(step), namespace)
	}
	for _, object := range s.objects {
		b.create(ctx, fill.Replace(object), namespace)
	}
	for _, step := range s.steps {
		b.step(ctx, fill.Replace(step), namespace)
	}
}

// create creates an object, with its status.
func (b *broken) create(ctx context.Context, text, namespace string) {
	b.t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		b.t.Fatalf("%v in %s", err, text)
	}
	if o.GetAPIVersion() == "" {
		o.SetAPIVersion("v1")
	}
	status, hasStatus := o.Object["status"]
	resource, namespaced := b.resourceOf(o.GroupVersionKind().GroupVersion().String(), o.GetKind(), namespace)
	if namespaced {
		o.SetNamespace(namespace)
	}
	made, err := resource.Create(ctx, o, metav1.CreateOptions{})
	// The definition of a custom resource may not be served yet.
	for end := time.Now().Add(patience); apierrors.IsNotFound(err) && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		made, err = resource.Create(ctx, o, metav1.CreateOptions{})
	}
	if err != nil {
		b.t.Fatalf("create %s: %v", text, err)
	}
	if hasStatus {
		made.Object["status"] = status
		patch := map[string]any{"status": status}
		data, err := yaml.Marshal(patch)
		if err == nil {
			data, err = yaml.YAMLToJSON(data)
		}
		if err == nil {
			_, err = resource.Patch(ctx, o.GetName(), types.MergePatchType, data, metav1.PatchOptions{}, "status")
		}
		if err != nil {
			b.t.Fatalf("status of %s: %v", text, err)
		}
	}
}

// resourceOf returns the client of a kind. Custom kinds of situations are namespaced.
func (b *broken) resourceOf(apiVersion, kind, namespace string) (dynamic.ResourceInterface, bool) {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	if k, ok := api.ByKind(gvk.GroupKind()); ok {
		return b.resource(k, namespace), k.Namespaced
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return b.client.Resource(plural).Namespace(namespace), true
}

// named returns the client of a kind by its name in a step. Custom kinds are widgets of a group.
func (b *broken) named(name, namespace string) (dynamic.ResourceInterface, bool) {
	if kind, ok := why.ResolveKind(name); ok {
		return b.resource(kind, namespace), true
	}
	kind, group, ok := strings.Cut(name, ".")
	return b.client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: kind + "s"}).Namespace(namespace), ok
}

func (b *broken) resource(kind *api.Kind, namespace string) dynamic.ResourceInterface {
	if kind.Namespaced {
		return b.client.Resource(kind.GVR()).Namespace(namespace)
	}
	return b.client.Resource(kind.GVR())
}

// step does what a line "do" says.
func (b *broken) step(ctx context.Context, text, namespace string) {
	b.t.Helper()
	words := strings.SplitN(text, " ", 3)
	var err error
	switch words[0] {
	case "tls":
		err = b.tlsSecret(ctx, namespace, words[1], strings.Fields(words[2]))
	case "csr":
		err = b.signingRequest(ctx, words[1], strings.Join(words[2:], ""))
	case "delete", "patch":
		name, object, _ := strings.Cut(words[1], "/")
		resource, ok := b.named(name, namespace)
		if !ok {
			b.t.Fatalf("unknown kind %s", name)
		}
		if words[0] == "delete" {
			err = resource.Delete(ctx, object, metav1.DeleteOptions{})
		} else {
			// Controllers may not have made the object yet.
			for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
				_, err = resource.Patch(ctx, object, types.MergePatchType, []byte(words[2]), metav1.PatchOptions{})
				if !apierrors.IsNotFound(err) || time.Now().After(end) {
					break
				}
			}
		}
	default:
		err = fmt.Errorf("unknown step")
	}
	if err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
}

// signingRequest makes a request of a signer that nothing serves, and judges it.
func (b *broken) signingRequest(ctx context.Context, name, judged string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if err != nil {
		return err
	}
	requests := b.typed.CertificatesV1().CertificateSigningRequests()
	made, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: "example.com/signer", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		},
	}, metav1.CreateOptions{})
	if err != nil || judged == "" {
		return err
	}
	made.Status.Conditions = append(made.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.RequestConditionType(judged), Status: corev1.ConditionTrue, Reason: "ByTest",
	})
	_, err = requests.UpdateApproval(ctx, name, made, metav1.UpdateOptions{})
	return err
}
