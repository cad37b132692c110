package architecture_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	controllers "github.com/knarr-project/knarr/internal/controllers/architecture"
	"github.com/knarr-project/knarr/internal/controllers/deployment"
	"github.com/knarr-project/knarr/internal/controllers/gc"
	"github.com/knarr-project/knarr/internal/controllers/replicaset"
)

// shop is a cluster with the controller.
type shop struct {
	*controllertest.Cluster
	t *testing.T
}

func newShop(t *testing.T) *shop {
	c := controllertest.New(t)
	c.Serve()
	c.Config.Architecture = true
	c.Run(controllers.Controller, deployment.Deployment, replicaset.ReplicaSet, gc.Controller)
	c.RunPods("node", nil)
	s := &shop{c, t}
	for _, res := range []schema.GroupVersionResource{architecture.Components, architecture.Systems} {
		c.Eventually("the kinds are served", func() string {
			if _, err := c.Client.List(t.Context(), res, "", metav1.ListOptions{}); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	return s
}

// apply creates objects of the kinds from YAML, or replaces their specs.
func (s *shop) apply(text string) {
	s.t.Helper()
	for part := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(part), &u.Object); err != nil {
			s.t.Fatal(err)
		}
		u.SetAPIVersion(architecture.GroupVersion.String())
		res := architecture.Systems
		if u.GetKind() == "Component" {
			u.SetNamespace("default")
			res = architecture.Components
		}
		_, err := s.Client.Create(s.t.Context(), res, u.GetNamespace(), u, metav1.CreateOptions{})
		for apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
			var have any
			have, err = s.Client.Get(s.t.Context(), res, u.GetNamespace(), u.GetName(), metav1.GetOptions{})
			if err == nil {
				changed := have.(*unstructured.Unstructured).DeepCopy()
				changed.Object["spec"] = u.Object["spec"]
				_, err = s.Client.Update(s.t.Context(), res, changed, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *shop) remove(res schema.GroupVersionResource, name string) {
	s.t.Helper()
	namespace := ""
	if res == architecture.Components {
		namespace = "default"
	}
	if err := s.Client.Delete(s.t.Context(), res, namespace, name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// run creates a Deployment whose pods have the label app.
func (s *shop) run(name string, replicas int32) {
	s.t.Helper()
	set := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: set},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: set}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
	if _, err := client.Create(s.t.Context(), s.Client, d); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) component(name string) *architecture.Component {
	c := &architecture.Component{}
	obj, err := s.Client.Get(s.t.Context(), architecture.Components, "default", name, metav1.GetOptions{})
	if err == nil {
		err = architecture.From(obj.(*unstructured.Unstructured), c)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// condition waits until a component's condition has the status and a message with all the parts.
func (s *shop) condition(component, condition string, status metav1.ConditionStatus, parts ...string) {
	s.t.Helper()
	s.Eventually(component+" "+condition, func() string {
		c := meta.FindStatusCondition(s.component(component).Status.Conditions, condition)
		if c == nil {
			return "it does not exist"
		}
		for _, part := range parts {
			if !strings.Contains(c.Reason+": "+c.Message, part) {
				return fmt.Sprintf("%s %s: %s lacks %q", c.Status, c.Reason, c.Message, part)
			}
		}
		if c.Status != status {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
		return ""
	})
}

// policies waits until the NetworkPolicies of the namespace are these.
func (s *shop) policies(names ...string) {
	s.t.Helper()
	s.Eventually("policies", func() string {
		list, err := s.Client.List(s.t.Context(), networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), "default", metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var have []string
		for _, p := range list.(*networkingv1.NetworkPolicyList).Items {
			have = append(have, p.Name)
		}
		if !slices.Equal(have, names) {
			return fmt.Sprintf("have %v, want %v", have, names)
		}
		return ""
	})
}

const three = `
kind: Component
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  offers: [{name: http, port: 8080}]
  exposed: [http]
  requires: [{component: api}]
  layer: front
---
kind: Component
metadata: {name: api}
spec:
  selector: {matchLabels: {app: api}}
  offers: [{name: http, port: 8080}]
  requires: [{component: store, port: sql}]
  levels: {minReady: 2}
  layer: middle
---
kind: Component
metadata: {name: store}
spec:
  selector: {matchLabels: {app: store}}
  offers: [{name: sql, port: 5432}]
  layer: back
---
kind: System
metadata: {name: shop}
spec:
  namespaces: [default]
  layers: [front, middle, back]
  network: %s
`

func TestDeclaredComponentsAreJudgedAndGetPolicies(t *testing.T) {
	s := newShop(t)
	s.apply(fmt.Sprintf(three, "Enforce"))
	s.condition("api", architecture.RequirementsMet, metav1.ConditionFalse, "component default/store has no ready pod")
	s.condition("api", architecture.LevelsKept, metav1.ConditionFalse, "0 pods are ready; spec.levels.minReady is 2")
	for _, name := range []string{"web", "api", "store"} {
		s.run(name, 2)
	}
	for _, name := range []string{"web", "api", "store"} {
		s.condition(name, architecture.Conforms, metav1.ConditionTrue)
	}
	s.condition("api", architecture.LevelsKept, metav1.ConditionTrue, "2 of 2")
	s.policies("component-api-egress", "component-api-ingress", "component-store-ingress", "component-web-egress", "component-web-ingress")
	if have := s.component("api").Status; len(have.Workloads) != 1 || have.Workloads[0].Ready != 2 || !slices.Equal(have.Systems, []string{"shop"}) {
		t.Errorf("status %+v", have)
	}
	s.Eventually("the System", func() string {
		obj, err := s.Client.Get(t.Context(), architecture.Systems, "", "shop", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		var system architecture.System
		if err := architecture.From(obj.(*unstructured.Unstructured), &system); err != nil {
			return err.Error()
		}
		if system.Status.Count != 3 || system.Status.Conforming != 3 || !meta.IsStatusConditionTrue(system.Status.Conditions, architecture.Conforms) {
			return fmt.Sprintf("%+v", system.Status)
		}
		return ""
	})
}

func TestPoliciesFollowTheDeclarations(t *testing.T) {
	s := newShop(t)
	own := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "component-web-egress"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Egress"}}}
	if _, err := client.Create(t.Context(), s.Client, own); err != nil {
		t.Fatal(err)
	}
	s.apply(fmt.Sprintf(three, "Enforce"))
	all := []string{"component-api-egress", "component-api-ingress", "component-store-ingress", "component-web-egress", "component-web-ingress"}
	s.policies(all...)
	s.condition("web", architecture.PoliciesApplied, metav1.ConditionFalse, "NetworkPolicy component-web-egress exists and does not belong to the component")

	t.Log("a deleted or changed policy comes back")
	if err := client.Delete[*networkingv1.NetworkPolicy](t.Context(), s.Client, "default", "component-store-ingress", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Patch[*networkingv1.NetworkPolicy](t.Context(), s.Client, "default", "component-api-ingress", types.MergePatchType, []byte(`{"spec":{"ingress":null}}`)); err != nil {
		t.Fatal(err)
	}
	s.policies(all...)
	s.Eventually("the policy's rules", func() string {
		p, err := client.Get[*networkingv1.NetworkPolicy](t.Context(), s.Client, "default", "component-api-ingress")
		if err != nil || len(p.Spec.Ingress) != 2 {
			return fmt.Sprint(p.Spec, err)
		}
		return ""
	})

	t.Log("a component without a System has none")
	s.remove(architecture.Components, "api")
	s.policies("component-store-ingress", "component-web-egress", "component-web-ingress")
	s.condition("web", architecture.RequirementsMet, metav1.ConditionFalse, "ComponentUnknown", "spec.requires[0].component: component default/api does not exist")
	s.apply(fmt.Sprintf(three, "Report"))
	s.policies("component-web-egress")
}

func TestContradictionsAreConditions(t *testing.T) {
	s := newShop(t)
	for _, name := range []string{"web", "api", "store"} {
		s.run(name, 1)
	}
	s.apply(fmt.Sprintf(three, "None"))
	s.apply(`
kind: Component
metadata: {name: store}
spec:
  selector: {matchLabels: {app: store}}
  offers: [{name: sql, port: 5432}]
  requires: [{component: web}, {component: apy}]
  layer: back`)
	s.condition("store", architecture.Acyclic, metav1.ConditionFalse, "default/store → default/web → default/api → default/store")
	s.condition("web", architecture.Acyclic, metav1.ConditionFalse)
	s.condition("store", architecture.LayersRespected, metav1.ConditionFalse, "component default/web is in layer front, above layer back")
	s.condition("store", architecture.RequirementsMet, metav1.ConditionFalse, `did you mean "api"?`)
	s.apply(`
kind: System
metadata: {name: shop}
spec:
  namespaces: [default]
  forbidden: [{from: {component: default/web}, to: {component: default/api}, reason: the web is static}]`)
	s.condition("web", architecture.DependenciesAllowed, metav1.ConditionFalse, "the web is static")
	s.condition("store", architecture.LayersRespected, metav1.ConditionTrue)
	if events := s.Events.List(); !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, "Warning Circle") }) {
		t.Errorf("events: %v", events)
	}
}

func TestUndeclaredTrafficIsACondition(t *testing.T) {
	s := newShop(t)
	for _, name := range []string{"web", "api", "store"} {
		s.run(name, 1)
	}
	s.apply(fmt.Sprintf(three, "Report"))
	s.condition("web", architecture.TrafficDeclared, metav1.ConditionUnknown, "NoCounters")
	end := func(name string) architecture.End {
		return architecture.End{Namespace: "default", Kind: "Deployment", Name: name}
	}
	now := metav1.Now()
	flow := func(from, to string, port int32) architecture.Flow {
		return architecture.Flow{From: end(from), To: architecture.Destination{End: end(to), Port: port, Protocol: "TCP"}, Verdict: architecture.Allowed, FirstSeen: now, LastSeen: now, Connections: 1}
	}
	seen := &architecture.Traffic{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Entries: []architecture.Flow{flow("web", "api", 8080), flow("web", "store", 5432), flow("api", "store", 5432)}}
	u, err := seen.Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.Create(t.Context(), architecture.Traffics, "", u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.condition("web", architecture.TrafficDeclared, metav1.ConditionFalse, "Deployment default/web connects to component default/store at 5432/TCP, which no requirement declares")
	s.condition("api", architecture.TrafficDeclared, metav1.ConditionTrue)
}

func TestWithoutDeclarationsOnlyTheKindsAreServed(t *testing.T) {
	c := controllertest.New(t)
	c.Serve()
	c.Config.Architecture = true
	watched := &counting{Interface: c.Client, seen: map[string]bool{}}
	c.Client = watched
	c.Run(controllers.Controller)
	c.Eventually("the kinds", func() string {
		watched.mu.Lock()
		defer watched.mu.Unlock()
		if !watched.seen["systems"] {
			return "not watched yet"
		}
		return ""
	})
	watched.mu.Lock()
	defer watched.mu.Unlock()
	if len(watched.seen) != 2 {
		t.Errorf("views: %v", watched.seen)
	}
	list, err := c.Client.List(t.Context(), apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), "", metav1.ListOptions{})
	if err != nil || len(list.(*apiextensionsv1.CustomResourceDefinitionList).Items) != 3 {
		t.Errorf("definitions: %v %v", list, err)
	}
}
