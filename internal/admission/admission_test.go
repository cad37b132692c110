package admission

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
)

// run passes a write through the default chain. The cluster contains the given objects, the
// namespace "ns" and its default service account.
func run(t *testing.T, a Attributes, cluster ...client.Object) error {
	t.Helper()
	cluster = append(cluster,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}})
	return through(t, a, clienttest.NewMemory(cluster...))
}

func through(t *testing.T, a Attributes, m *clienttest.Memory) error {
	t.Helper()
	chain, err := Default(t.Context(), m, Config{Suffix: func(n int) string { return strings.Repeat("x", n) }, Now: func() time.Time { return time.Unix(0, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	a.Warn, a.Annotate = func(string) {}, func(string, string) {}
	if a.Resource == (schema.GroupVersionResource{}) {
		obj := a.Object
		if obj == nil {
			obj = a.OldObject
		}
		a.Resource = api.ResourceOf(obj)
		kind, _ := api.ByResource(a.Resource.GroupResource())
		a.Kind = kind.Kind
		if kind.Namespaced {
			a.Namespace = obj.(client.Object).GetNamespace()
		}
	}
	if a.Operation == "" {
		a.Operation = Create
	}
	if err := chain.Admit(t.Context(), &a); err != nil {
		return err
	}
	return chain.Validate(t.Context(), &a)
}

func newPod(change ...func(p *corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func TestConfiguredTolerationSecondsAreAdded(t *testing.T) {
	notReady, unreachable := int64(0), int64(7)
	chain, err := Default(t.Context(), clienttest.NewMemory(namespaceWith(nil)), Config{NotReadyToleration: &notReady, UnreachableToleration: &unreachable})
	if err != nil {
		t.Fatal(err)
	}
	pod := newPod()
	a := attributesOf(pod)
	for _, p := range chain.plugins {
		if m, ok := p.(Mutator); ok && p.Name() == "DefaultTolerationSeconds" {
			if err := m.Admit(t.Context(), a); err != nil {
				t.Fatal(err)
			}
		}
	}
	tolerations := pod.Spec.Tolerations
	if len(tolerations) != 2 || tolerations[0].Key != corev1.TaintNodeNotReady || *tolerations[0].TolerationSeconds != 0 || *tolerations[1].TolerationSeconds != 7 {
		t.Errorf("it tolerates %v", tolerations)
	}
}

func TestPodsGetDefaults(t *testing.T) {
	pod := newPod()
	if err := run(t, Attributes{Object: pod}); err != nil {
		t.Fatal(err)
	}
	s := pod.Spec
	if s.ServiceAccountName != "default" || len(s.ImagePullSecrets) != 1 || s.Priority == nil || *s.Priority != 0 || *s.PreemptionPolicy != corev1.PreemptLowerPriority {
		t.Errorf("spec is %+v", s)
	}
	if len(s.Volumes) != 1 || s.Volumes[0].Name != "kube-api-access-xxxxx" || len(s.Volumes[0].Projected.Sources) != 3 ||
		len(s.Containers[0].VolumeMounts) != 1 || s.Containers[0].VolumeMounts[0].MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" {
		t.Errorf("volumes %+v, mounts %+v", s.Volumes, s.Containers[0].VolumeMounts)
	}
	if len(s.Tolerations) != 2 || *s.Tolerations[0].TolerationSeconds != 300 {
		t.Errorf("tolerations %+v", s.Tolerations)
	}
}

func TestTokensAreMountedUnlessDisabled(t *testing.T) {
	no := false
	for name, pod := range map[string]*corev1.Pod{
		"the pod disables it": newPod(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = &no }),
		"the path has another mount": newPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: tokenMountPath}}
		}),
		"the account disables it": newPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "shy" }),
	} {
		if err := run(t, Attributes{Object: pod}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shy"}, AutomountServiceAccountToken: &no}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(pod.Spec.Volumes) != 0 {
			t.Errorf("%s: volumes %+v", name, pod.Spec.Volumes)
		}
	}
}

func TestPluginsRefuseInvalidWrites(t *testing.T) {
	terminating := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ending"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}
	limits := func(item corev1.LimitRangeItem) client.Object {
		return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
	}
	cpu := func(q string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}
	}
	asking := func(request, limit string) *corev1.Pod {
		return newPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: cpu(request), Limits: cpu(limit)}
		})
	}
	quota := func(hard, used corev1.ResourceList) client.Object {
		return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
			Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used}}
	}
	classQuota := func(class string, hard, used int64) client.Object {
		count := func(n int64) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: *resource.NewQuantity(n, resource.DecimalSI)}
		}
		selector := corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{class}}
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: class},
			Spec:       corev1.ResourceQuotaSpec{Hard: count(hard), ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{selector}}},
			Status:     corev1.ResourceQuotaStatus{Hard: count(hard), Used: count(used)},
		}
	}
	inClass := func(name string) *corev1.PersistentVolumeClaim {
		c := claimOf("1Gi", corev1.ClaimBound)
		c.Spec.VolumeAttributesClassName = &name
		return c
	}
	one := int32(1)
	cases := []struct {
		name    string
		a       Attributes
		cluster []client.Object
		want    string
	}{
		{"a missing namespace", Attributes{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "gone", Name: "c"}}}, nil, `namespaces "gone" not found`},
		{"a terminating namespace", Attributes{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ending", Name: "c"}}}, []client.Object{terminating},
			`configmaps "c" is forbidden: unable to create new content in namespace ending because it is being terminated`},
		{"the default namespace's deletion", Attributes{Operation: Delete, Name: "default", OldObject: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}, nil,
			`namespaces "default" is forbidden: this namespace may not be deleted`},
		{"an unknown account", Attributes{Object: newPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "x" })}, nil,
			`pods "p" is forbidden: error looking up service account ns/x: serviceaccount "x" not found`},
		{"an unknown priority class", Attributes{Object: newPod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "x" })}, nil,
			`pods "p" is forbidden: no PriorityClass with name x was found`},
		{"a priority set by the client", Attributes{Object: newPod(func(p *corev1.Pod) { p.Spec.Priority = &one })}, nil,
			`pods "p" is forbidden: the integer value of priority (1) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name`},
		{"a second default class", Attributes{Object: &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "b"}, GlobalDefault: true}},
			[]client.Object{&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}, GlobalDefault: true}},
			`priorityclasses.scheduling.k8s.io "b" is forbidden: PriorityClass a is already marked as default. Only one default can exist`},
		{"a request below the minimum", Attributes{Object: asking("10m", "20m")}, []client.Object{limits(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: cpu("50m")})},
			`pods "p" is forbidden: minimum cpu usage per Container is 50m, but request is 10m`},
		{"a limit above the maximum", Attributes{Object: asking("1", "2")}, []client.Object{limits(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpu("1")})},
			`pods "p" is forbidden: maximum cpu usage per Pod is 1, but limit is 2`},
		{"a ratio above the maximum", Attributes{Object: asking("1", "3")}, []client.Object{limits(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: cpu("2")})},
			`pods "p" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000`},
		{"above the quota", Attributes{Object: asking("2", "2")}, []client.Object{quota(corev1.ResourceList{"requests.cpu": resource.MustParse("3")}, corev1.ResourceList{"requests.cpu": resource.MustParse("2")}), asking("2", "2")},
			`pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=2, limited: requests.cpu=3`},
		{"a quota without status", Attributes{Object: asking("2", "2")}, []client.Object{quota(corev1.ResourceList{"requests.cpu": resource.MustParse("3")}, nil)},
			`pods "p" is forbidden: status unknown for quota: q, resources: requests.cpu`},
		{"a pod without the bounded resource", Attributes{Object: newPod()}, []client.Object{quota(corev1.ResourceList{"limits.cpu": resource.MustParse("3")}, nil)},
			`pods "p" is forbidden: failed quota: q: must specify limits.cpu for: c`},
		{"a claim that moves to a class without quota", Attributes{Operation: Update, Object: inClass("silver"), OldObject: inClass("gold")},
			[]client.Object{classQuota("gold", 1, 1), classQuota("silver", 1, 1)},
			`persistentvolumeclaims "c" is forbidden: exceeded quota: silver, requested: persistentvolumeclaims=1, used: persistentvolumeclaims=1, limited: persistentvolumeclaims=1`},
		{"an unknown runtime class", Attributes{Object: newPod(func(p *corev1.Pod) { s := "x"; p.Spec.RuntimeClassName = &s })}, nil,
			`pods "p" is forbidden: pod rejected: RuntimeClass "x" not found`},
		{"a violation of the namespace's standard", Attributes{Object: func() *corev1.Pod {
			p := newPod(func(p *corev1.Pod) { p.Spec.HostNetwork = true })
			p.Namespace = "strict"
			return p
		}()}, []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "strict", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "strict", Name: "default"}}},
			`pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`},
		{"expansion of an unbound claim", Attributes{Operation: Update, Object: claimOf("2Gi", ""), OldObject: claimOf("1Gi", "")}, nil,
			`persistentvolumeclaims "c" is forbidden: only bound persistent volume claims can be expanded`},
		{"expansion without support of the class", Attributes{Operation: Update, Object: claimOf("2Gi", corev1.ClaimBound), OldObject: claimOf("1Gi", corev1.ClaimBound)}, nil,
			`only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := run(t, c.a, c.cluster...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got  %v\nwant %s", err, c.want)
			}
			if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
				t.Errorf("%T is not a StatusError", err)
			}
		})
	}
	err := run(t, cases[1].a, terminating)
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("%v has no cause NamespaceTerminating", err)
	}
}

func claimOf(size string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"},
		Spec:       corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: phase},
	}
}

func TestDefaultsFromTheCluster(t *testing.T) {
	old := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "old", CreationTimestamp: metav1.Unix(1, 0), Annotations: map[string]string{annotationDefaultStorageClass: "true"}}}
	recent := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "recent", CreationTimestamp: metav1.Unix(2, 0), Annotations: map[string]string{annotationDefaultStorageClass: "true"}}}
	claim := claimOf("1Gi", "")
	if err := run(t, Attributes{Object: claim}, old, recent); err != nil || claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName != "recent" || len(claim.Finalizers) != 1 {
		t.Errorf("%v %+v", err, claim)
	}
	pod := newPod()
	limit := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{"cpu": resource.MustParse("1")}, DefaultRequest: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Mi")},
	}}}}
	if err := run(t, Attributes{Object: pod}, limit); err != nil {
		t.Fatal(err)
	}
	if got, want := pod.Annotations[limitRangerAnnotation], "LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c"; got != want {
		t.Errorf("annotation is %q, want %q", got, want)
	}
	pod = newPod(func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("2")}, Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	})
	if err := run(t, Attributes{Object: pod}, limit); err != nil || len(pod.Spec.Resources.Requests) != 2 || pod.Spec.Resources.Requests.Memory().String() != "1Mi" || pod.Spec.Resources.Requests.Cpu().String() != "1" {
		t.Errorf("the pod-level requests are not those of its containers: %v %+v", err, pod.Spec.Resources)
	}
	gvisor := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"memory": resource.MustParse("64Mi")}},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"sandbox": "yes"}}}
	name := "gvisor"
	pod = newPod(func(p *corev1.Pod) { p.Spec.RuntimeClassName = &name })
	if err := run(t, Attributes{Object: pod}, gvisor); err != nil || pod.Spec.Overhead.Memory().String() != "64Mi" || pod.Spec.NodeSelector["sandbox"] != "yes" {
		t.Errorf("%v %+v", err, pod.Spec)
	}
}

func TestQuotaIsChargedAndDryRunIsNot(t *testing.T) {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("2")}}}
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{"count/configmaps": resource.MustParse("0")}}
	m := clienttest.NewMemory(quota, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	create := func(dry bool) error {
		return through(t, Attributes{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}, DryRun: dry}, m)
	}
	if err := create(true); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := create(false); err != nil {
			t.Fatal(err)
		}
	}
	if err := create(false); err == nil || !strings.Contains(err.Error(), "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=2, limited: count/configmaps=2") {
		t.Error(err)
	}
}

func TestNodesWriteOnlyTheirOwnObjects(t *testing.T) {
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	mirror := newPod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.Spec.NodeName = "n1"
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "n1-uid", Controller: new(true)}}
	})
	alone := mirror.DeepCopy()
	alone.OwnerReferences = nil
	driven := mirror.DeepCopy()
	driven.Annotations[corev1.MirrorPodAnnotationKey] = ""
	driven.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: &corev1.LocalObjectReference{Name: "s"}}}}}
	bound := newPod(func(p *corev1.Pod) { p.Spec.NodeName = "n2" })
	claiming := mirror.DeepCopy()
	claiming.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	own := newPod(func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
	extended := own.DeepCopy()
	extended.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "of-others"}
	cases := []struct {
		name string
		a    Attributes
		want string // "" means allowed
	}{
		{"its own node", Attributes{Object: node("n1", map[string]string{"kubernetes.io/hostname": "n1", "example.com/x": "y", "node.kubernetes.io/any": "z"})}, ""},
		{"another node", Attributes{Object: node("n2", nil)}, `node "n1" is not allowed to modify node "n2"`},
		{"a restricted label", Attributes{Object: node("n1", map[string]string{"node-restriction.kubernetes.io/x": "y"})}, `node "n1" is not allowed to set the following labels: node-restriction.kubernetes.io/x`},
		{"a role", Attributes{Object: node("n1", map[string]string{"node-role.kubernetes.io/control-plane": ""}), OldObject: node("n1", nil), Operation: Update, Name: "n1"}, `is not allowed to modify labels: node-role.kubernetes.io/control-plane`},
		{"a mirror pod", Attributes{Object: mirror}, ""},
		{"a mirror pod without owner", Attributes{Object: alone}, `node "n1" can only create pods with an owner reference set to itself`},
		{"a mirror pod whose driver needs a Secret", Attributes{Object: driven}, `a mirror pod may not reference secrets`},
		{"a mirror pod with an ephemeral volume", Attributes{Object: claiming}, `node "n1" can not create pods that reference persistentvolumeclaims (via ephemeral volumes)`},
		{"a status that names a claim", Attributes{Operation: Update, Subresource: "status", Name: "p", Object: extended, OldObject: own}, `node "n1" cannot update extended resource claim status`},
		{"another pod", Attributes{Object: newPod()}, `pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods`},
		{"another node's pod", Attributes{Operation: Delete, Name: "p", OldObject: bound}, `node "n1" can only delete pods with spec.nodeName set to itself`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.a.User = auth.User{Name: "system:node:n1", Groups: []string{auth.GroupNodes}}
			err := run(t, c.a, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1-uid"}})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// A kubelet that gets Forbidden would retry; NotFound ends the eviction.
func TestEvictingAMissingPodIsNotFound(t *testing.T) {
	err := run(t, Attributes{Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: "ns", Subresource: "eviction", Name: "p", Object: &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}},
		User: auth.User{Name: "system:node:n1", Groups: []string{auth.GroupNodes}}})
	if !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}

func TestPluginsAreDisabledByNameAndUnknownNamesAreErrors(t *testing.T) {
	m := clienttest.NewMemory(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	chain, err := Default(context.Background(), m, Config{Disable: []string{"ServiceAccount"}})
	if err != nil {
		t.Fatal(err)
	}
	a := &Attributes{Operation: Create, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: "ns", Object: runtime.Object(newPod()), Warn: func(string) {}, Annotate: func(string, string) {}}
	if err := chain.Admit(context.Background(), a); err != nil {
		t.Error(err)
	}
	for _, p := range chain.plugins {
		if p.Name() == "OwnerReferencesPermissionEnforcement" {
			t.Error("a plugin that is off by default is on")
		}
	}
	for name, config := range map[string]Config{
		"a misspelt name":                     {Disable: []string{"ServiceAcount"}},
		"a plugin without upstream's name":    {Disable: []string{"RoleEscalation"}},
		"a plugin both enabled and disabled":  {Enable: []string{"PodSecurity"}, Disable: []string{"PodSecurity"}},
		"ImagePolicyWebhook without a server": {Enable: []string{"ImagePolicyWebhook"}},
		"EventRateLimit without limits":       {Enable: []string{"EventRateLimit"}},
		"a plugin that this server lacks":     {Enable: []string{"MutatingAdmissionPolicy"}},
	} {
		if _, err := Default(context.Background(), m, config); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for range 20 {
		if _, err := Default(t.Context(), m, Config{Enable: []string{"A"}, Disable: []string{"B"}}); err == nil || !strings.HasPrefix(err.Error(), `enable-admission-plugins plugin "A" is unknown`) {
			t.Fatalf("the error does not name the first of two unknown plugins: %v", err)
		}
	}
}

// The help of upstream's kube-apiserver lists all plugins and the default plugins.
func TestEveryPluginHasASwitch(t *testing.T) {
	limits := Files{EventLimits: []EventLimit{{Type: "Server", QPS: 1, Burst: 1}}}
	placed := Config{Files: limits}
	for _, name := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"} {
		for _, at := range []*Plugin{&placed.MutatingPolicy, &placed.MutatingWebhook, &placed.ValidatingPolicy, &placed.ValidatingWebhook} {
			if *at == nil {
				*at = newIdle(name)
				break
			}
		}
	}
	chain, err := Default(t.Context(), clienttest.NewMemory(), placed)
	if err != nil {
		t.Fatal(err)
	}
	on := map[string]bool{}
	for _, p := range chain.plugins {
		on[p.Name()] = true
	}
	placed.Enable, placed.Files.ImagePolicy = OffByDefault, &ImagePolicy{KubeConfigFile: imageServerConfig(t)}
	full, err := Default(t.Context(), clienttest.NewMemory(), placed)
	if err != nil {
		t.Fatalf("not everything can be turned on: %v", err)
	}
	for _, name := range Names {
		if !slices.ContainsFunc(full.plugins, func(p Plugin) bool { return p.Name() == name }) {
			t.Errorf("there is no plugin with the name %s", name)
		}
		off := slices.Contains(OffByDefault, name)
		if on[name] == off {
			t.Errorf("%s: it is on: %v", name, on[name])
		}
		delete(on, name)
	}
	// validation, not plugins, in upstream.
	for _, validation := range []string{"DeviceAdminAccess", "DeviceClaimStatus"} {
		delete(on, validation)
	}
	if len(on) > 0 {
		t.Errorf("these have no switch: %v", on)
	}
	// NodeRestriction is off in upstream, but every installer turns it on.
	if len(Names) != 41 || len(OffByDefault) != 13 {
		t.Errorf("%d plugins, %d of them off; upstream has 41 and 14, NodeRestriction among them", len(Names), len(OffByDefault))
	}
}
