// Package timeline judges `knarr timeline`, `knarr diff` and reads of objects as they were on a
// cluster with controllers.
package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/cli"
	"github.com/knarr-project/knarr/internal/cli/insight"
	"github.com/knarr-project/knarr/internal/insight/timeline"
	"github.com/knarr-project/knarr/knarrtest"
)

const patience = 60 * time.Second

// knarr runs a command with a kubeconfig.
func knarr(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root := cli.Root()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append(args, "--kubeconfig", kubeconfig))
	err := root.ExecuteContext(t.Context())
	t.Logf("$ knarr %s\n%s(%v)", strings.Join(args, " "), out.String(), err)
	if err != nil {
		out.WriteString(err.Error())
	}
	return out.String()
}

// await repeats a question until the answer is right.
func await(t *testing.T, what string, right func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !right(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func clientOf(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func web() *appsv1.Deployment {
	one := int32(1)
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "app:v1"}}},
		}},
	}
}

// A Deployment is created, scaled and deleted. Each is seen afterwards.
func TestTheLifeOfADeployment(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithNodes(1))
	admin, ctx := c.KubeconfigPath(), t.Context()
	client := clientOf(t, c.Config())
	deployments, pods := client.AppsV1().Deployments("default"), client.CoreV1().Pods("default")
	ready := func(n int) func() bool {
		return func() bool {
			d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
			return err == nil && int(d.Status.ReadyReplicas) == n && int(d.Status.Replicas) == n && d.Status.ObservedGeneration == d.Generation
		}
	}
	if _, err := deployments.Create(ctx, web(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the Deployment is not ready", ready(1))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, StringData: map[string]string{"password": "swordfish"}}
	if _, err := client.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	then := time.Now()

	scale := []byte(`{"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"c","image":"app:v2"}]}}}}`)
	if _, err := deployments.Patch(ctx, "web", types.StrategicMergePatchType, scale, metav1.PatchOptions{FieldManager: "scaler"}); err != nil {
		t.Fatal(err)
	}
	await(t, "the Deployment is not scaled", ready(2))
	change := []byte(`{"stringData":{"password":"marlin"}}`)
	if _, err := client.CoreV1().Secrets("default").Patch(ctx, "keys", types.MergePatchType, change, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	text := knarr(t, admin, "timeline", "deploy/web", "--limit", "1000")
	for _, want := range []string{"deployment/web created by ", "(scaler)", "spec.replicas: 1 → 2", "containers[c].image: app:v1 → app:v2",
		"replicaset/web-", "pod/web-", "event ScalingReplicaSet of deployment/web", "by replicaset-controller"} {
		if !strings.Contains(text, want) {
			t.Errorf("the timeline lacks %q", want)
		}
	}
	if strings.Contains(text, "secret/") {
		t.Error("the timeline of the Deployment has another object")
	}
	if only := knarr(t, admin, "timeline", "deploy/web", "--only"); strings.Contains(only, "pod/web-") || strings.Contains(only, "event ") {
		t.Error("--only shows more than the object")
	}
	secrets := knarr(t, admin, "timeline", "secrets")
	if !strings.Contains(secrets, "data.password has another value") || strings.Contains(secrets, "swordfish") {
		t.Error("the timeline of Secrets is wrong")
	}
	since := then.UTC().Format(time.RFC3339Nano)
	diff := knarr(t, admin, "diff", "deploy/web", "--only", "--since", since)
	for _, want := range []string{"deployment/web changed", "-   replicas: 1", "+   replicas: 2", "-       - image: app:v1"} {
		if !strings.Contains(diff, want) {
			t.Errorf("the difference lacks %q", want)
		}
	}
	for line := range strings.SplitSeq(text+secrets, "\n") {
		if len([]rune(line)) > 100 {
			t.Errorf("a line is longer than 100 columns: %s", line)
		}
	}

	past := clientOf(t, insight.At(c.Config(), since))
	was, err := past.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
	if err != nil || *was.Spec.Replicas != 1 || was.Spec.Template.Spec.Containers[0].Image != "app:v1" || was.ResourceVersion == "" {
		t.Errorf("%v %+v", err, was)
	}
	list, err := past.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web", FieldSelector: "status.phase=Running"})
	if err != nil || len(list.Items) != 1 || list.ResourceVersion == "" {
		t.Errorf("pods: %v %+v", err, list)
	}
	if err := past.AppsV1().Deployments("default").Delete(ctx, "web", metav1.DeleteOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("a write in the past: %v", err)
	}

	foreground := metav1.DeletePropagationForeground
	if err := deployments.Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	await(t, "the pods are not gone", func() bool {
		list, err := pods.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	var answer timeline.Answer
	if err := json.Unmarshal([]byte(knarr(t, admin, "timeline", "deploy/web", "-o", "json", "--limit", "1000")), &answer); err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{"deployments", "replicasets", "pods"} {
		if !slices.ContainsFunc(answer.Items, func(i timeline.Item) bool { return i.Effect == "removed" && i.Resource == resource }) {
			t.Errorf("the removal of %s is missing", resource)
		}
	}
	if len(answer.Gaps) > 0 || answer.Reaches.IsZero() {
		t.Errorf("%v %v", answer.Gaps, answer.Reaches)
	}
	if gone := knarr(t, admin, "diff", "-A", "deployments", "--since", since); !strings.Contains(gone, "deployment/web in default removed") {
		t.Error("the removal is no difference")
	}
	if list, err = past.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("the pod of then: %v %+v", err, list)
	}
}

// A user sees the history of objects that the user may get, and no other.
func TestRightsHoldForThePast(t *testing.T) {
	c := knarrtest.Start(t)
	ctx, client := t.Context(), clientOf(t, c.Config())
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"asker": {{NonResourceURLs: []string{"/insight/v1/*"}, Verbs: []string{"get"}}},
		"maps":  {{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}}},
	} {
		if _, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}},
		}
		if name == "asker" {
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "bob"})
		}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hidden-one"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for user, sees := range map[string]bool{"ann": true, "bob": false, "eve": false} {
		data, err := c.KubeconfigAs(user)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), user)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"timeline", "diff"} {
			out := knarr(t, path, command, "-n", "default", "--since", "0s")
			if command == "timeline" {
				out = knarr(t, path, command, "-n", "default", "--since", "1h")
			}
			if strings.Contains(out, "hidden-one") || command == "timeline" && strings.Contains(out, "configmap/seen") != sees {
				t.Errorf("%s %s: %s", user, command, out)
			}
			if user == "eve" && !strings.Contains(out, "forbidden") {
				t.Errorf("%s may ask: %s", user, out)
			}
		}
		past := clientOf(t, insight.At(c.As(user), now))
		if _, err := past.CoreV1().ConfigMaps("default").Get(ctx, "seen", metav1.GetOptions{}); (err == nil) != sees {
			t.Errorf("%s reads the past: %v", user, err)
		}
		if _, err := past.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s reads Secrets of the past: %v", user, err)
		}
	}
}

// A restart, and a start after the folder was cut anywhere, loses nothing that the store still has.
func TestHistoryOutlivesTheServer(t *testing.T) {
	dir := t.TempDir()
	start := func() *knarrtest.Cluster {
		c, err := knarrtest.New(knarrtest.OnDisk(dir), knarrtest.WithoutControllers(), knarrtest.WithoutScheduler())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := start()
	maps := clientOf(t, c.Config()).CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	then := time.Now().UTC().Format(time.RFC3339Nano)
	for _, value := range []string{"2", "3"} {
		if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":{"k":"`+value+`"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "history", "*.history"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	data, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, length := range []int{len(data), len(data) - 7, len(data) / 2, 3} {
		if err := os.WriteFile(segments[0], data[:length], 0o600); err != nil {
			t.Fatal(err)
		}
		c := start()
		changes := 0
		var answer timeline.Answer
		if err := json.Unmarshal([]byte(knarr(t, c.KubeconfigPath(), "timeline", "cm/a", "-n", "default", "-o", "json")), &answer); err != nil {
			t.Fatal(err)
		}
		for _, item := range answer.Items {
			changes += len(item.Changes)
		}
		if length > 3 && (len(answer.Items) != 3 || changes != 2 || len(answer.Gaps) > 0) {
			t.Errorf("%d of %d bytes: %+v", length, len(data), answer)
		}
		past := clientOf(t, insight.At(c.Config(), then)).CoreV1().ConfigMaps("default")
		if was, err := past.Get(t.Context(), "a", metav1.GetOptions{}); length == len(data) && (err != nil || was.Data["k"] != "1") {
			t.Errorf("%v %+v", err, was)
		}
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// Custom resources have a history too, which outlives their definition.
func TestTheLifeOfACustomResource(t *testing.T) {
	open := true
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &open}}}},
	}}
	c := knarrtest.Start(t, knarrtest.WithCRDObjects(crd))
	ctx, admin, kind := t.Context(), c.KubeconfigPath(), schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
	dynamicOf := func(config *rest.Config) dynamic.Interface {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	client := dynamicOf(c.Config())
	gadgets := client.Resource(kind).Namespace("default")
	gadget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"size": int64(1)},
	}}
	if _, err := gadgets.Create(ctx, gadget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	then := time.Now().UTC().Format(time.RFC3339Nano)
	if _, err := gadgets.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := gadgets.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	was, err := dynamicOf(insight.At(c.Config(), then)).Resource(kind).Namespace("default").Get(ctx, "a", metav1.GetOptions{})
	if err != nil || was.Object["spec"].(map[string]any)["size"] != int64(1) {
		t.Errorf("%v %v", err, was)
	}
	if out := knarr(t, admin, "timeline", "gadget/a", "-n", "default"); !strings.Contains(out, "gadget/a removed") || !strings.Contains(out, "spec.size: 1 → 2") {
		t.Error(out)
	}
	if err := client.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")).Delete(ctx, crd.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the kind is still served", func() bool {
		_, err := gadgets.List(ctx, metav1.ListOptions{})
		return apierrors.IsNotFound(err)
	})
	if out := knarr(t, admin, "timeline", "-n", "default"); !strings.Contains(out, "spec.size: 1 → 2") {
		t.Error(out)
	}
}

// A server without a history answers from the present, and the client notices.
func TestAServerWithoutHistorySaysSo(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithFlags("--history-size=off"))
	for _, command := range []string{"timeline", "diff"} {
		if out := knarr(t, c.KubeconfigPath(), command); !strings.Contains(out, "--history-size=off") {
			t.Errorf("%s: %s", command, out)
		}
	}
	past := clientOf(t, insight.At(c.Config(), time.Now().UTC().Format(time.RFC3339Nano)))
	_, err := past.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "--history-size=off") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(c.Dir(), "history")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the folder exists:", err)
	}
}
