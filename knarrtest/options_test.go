package knarrtest_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/knarrtest"
)

const shipsCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Ship, listKind: ShipList, plural: ships, singular: ship}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: passed-over}
`

const shipsWebhook = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: ships}
webhooks:
- name: ships.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {namespace: default, name: ships, path: /validate}}
  rules: [{apiGroups: [example.com], apiVersions: [v1], resources: [ships], operations: [CREATE]}]
`

var ships = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "ships"}

func ship(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Ship", "metadata": map[string]any{"name": name}}}
}

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCustomResourcesAndWebhooks(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithCRDs(filepath.Dir(file(t, "ships.yaml", shipsCRD))), knarrtest.WithWebhooks(file(t, "hook.yaml", shipsWebhook)),
		knarrtest.WithoutControllers(), knarrtest.WithoutScheduler())
	hooks := c.Webhooks()
	pair, err := tls.LoadX509KeyPair(filepath.Join(hooks.CertDir, "tls.crt"), filepath.Join(hooks.CertDir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort(hooks.Host, fmt.Sprint(hooks.Port)), &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.URL.Path != "/validate" {
			http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: review.Request.Name != "titanic", Result: &metav1.Status{Message: "it sinks"}}
		_ = json.NewEncoder(w).Encode(review)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	d, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Resource(ships).Namespace("default").Create(t.Context(), ship("titanic"), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "it sinks") {
		t.Errorf("a refused ship: %v", err)
	}
	if _, err := d.Resource(ships).Namespace("default").Create(t.Context(), ship("vasa"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func TestAMissingPathIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := knarrtest.New(knarrtest.WithCRDs("testdata/none"), knarrtest.WithoutControllers()); !os.IsNotExist(err) && !strings.Contains(fmt.Sprint(err), "testdata/none") {
		t.Errorf("error %v", err)
	}
}

func TestAnUnknownFlagIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := knarrtest.New(knarrtest.WithFlags("--no-such-flag")); err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("error %v", err)
	}
}

func TestFlagsChangeTheServer(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithFlags("--runtime-config=batch/v1=false"), knarrtest.WithoutControllers(), knarrtest.WithoutScheduler())
	if _, err := clientset(t, c).BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("jobs of a group that is off: %v", err)
	}
}

func TestRequestsAreAudited(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithAudit("Metadata"), knarrtest.WithoutControllers(), knarrtest.WithoutScheduler())
	if _, err := clientset(t, c).CoreV1().ConfigMaps("default").Get(t.Context(), "looked-for", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	eventually(t, "the request is in the audit log", func() (bool, error) {
		text, err := os.ReadFile(c.AuditLog())
		return bytes.Contains(text, []byte("/configmaps/looked-for")), err
	})
}

func TestAUsersRightsFollowItsGroups(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithoutScheduler())
	k := clientset(t, c)
	_, err := k.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "viewers"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "viewers"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := func(config *rest.Config) kubernetes.Interface {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	viewer := user(c.As("jane", "viewers"))
	eventually(t, "a viewer sees pods", func() (bool, error) {
		_, err := viewer.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		return err == nil, err
	})
	if _, err := viewer.CoreV1().Pods("default").Create(t.Context(), pod("a"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a viewer made a pod: %v", err)
	}
	who, err := user(c.As("system:serviceaccount:shop:till")).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(who.Status.UserInfo.Groups, " "); got != "system:serviceaccounts system:serviceaccounts:shop system:authenticated" {
		t.Errorf("groups %s", got)
	}
}

func TestATokenExpiresOnTheClock(t *testing.T) {
	t.Parallel()
	var clock knarrtest.Clock
	c := knarrtest.Start(t, knarrtest.WithClock(&clock), knarrtest.WithoutScheduler())
	k := clientset(t, c)
	eventually(t, "there is a service account", func() (bool, error) {
		_, err := k.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil, err
	})
	hour := int64(3600)
	token, err := k.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Config())
	config.BearerToken = token.Status.Token
	bearer, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bearer.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("with a token: %v", err)
	}
	clock.Advance(2 * time.Hour)
	if _, err := bearer.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("with a token that has expired: %v", err)
	}
}

func TestFates(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithNodes(1), knarrtest.WithFate(func(p *corev1.Pod) knarrtest.Fate {
		return knarrtest.Fate{Waiting: p.Annotations["waits"], Unready: p.Annotations["unready"] != ""}
	}))
	k := clientset(t, c)
	waits, unready := pod("waits"), pod("unready")
	waits.Annotations, unready.Annotations = map[string]string{"waits": "ImagePullBackOff"}, map[string]string{"unready": "yes"}
	for _, p := range []*corev1.Pod{waits, unready} {
		if _, err := k.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the first waits for its image", func() (bool, error) {
		p, err := k.CoreV1().Pods("default").Get(t.Context(), "waits", metav1.GetOptions{})
		return err == nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting.Reason == "ImagePullBackOff", err
	})
	eventually(t, "the second runs and is not ready", func() (bool, error) {
		p, err := k.CoreV1().Pods("default").Get(t.Context(), "unready", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning && !p.Status.ContainerStatuses[0].Ready, err
	})
}

func TestAStoppedNodeIsLost(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithNodes(1), knarrtest.WithFlags("--node-monitor-grace-period=1s"))
	k := clientset(t, c)
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "big", Labels: map[string]string{"size": "big"}}}
	if err := c.AddNode(node); err != nil {
		t.Fatal(err)
	}
	if err := c.AddNode(node); err == nil {
		t.Error("a second node of the same name")
	}
	if err := c.StopNode("big"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is unknown", func() (bool, error) {
		n, err := k.CoreV1().Nodes().Get(t.Context(), "big", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == corev1.ConditionUnknown, nil
			}
		}
		return false, nil
	})
}
