package admission

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
)

// passes creates the object through a chain with the configured plugins besides the default ones.
func passes(t *testing.T, obj client.Object, config Config, cluster ...client.Object) error {
	t.Helper()
	config.Disable = append(config.Disable, "ServiceAccount")
	chain, err := Default(t.Context(), clienttest.NewMemory(cluster...), config)
	if err != nil {
		t.Fatal(err)
	}
	a := attributesOf(obj)
	if err := chain.Admit(t.Context(), a); err != nil {
		return err
	}
	return chain.Validate(t.Context(), a)
}

func attributesOf(obj client.Object) *Attributes {
	a := &Attributes{Operation: Create, Object: obj, Namespace: obj.GetNamespace(), Name: obj.GetName(), Warn: func(string) {}, Annotate: func(string, string) {}}
	switch obj.(type) {
	case *corev1.Pod:
		a.Kind, a.Resource = corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	case *corev1.Service:
		a.Kind, a.Resource = corev1.SchemeGroupVersion.WithKind("Service"), corev1.SchemeGroupVersion.WithResource("services")
	case *corev1.Event:
		a.Kind, a.Resource = corev1.SchemeGroupVersion.WithKind("Event"), corev1.SchemeGroupVersion.WithResource("events")
	case *corev1.Binding:
		a.Kind, a.Resource, a.Subresource = corev1.SchemeGroupVersion.WithKind("Binding"), corev1.SchemeGroupVersion.WithResource("pods"), "binding"
	}
	return a
}

func enable(names ...string) Config { return Config{Enable: names} }

func testPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", ImagePullPolicy: corev1.PullIfNotPresent}}}}
}

func namespaceWith(annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Annotations: annotations}}
}

func wantRefusal(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestPodsGetTheTopologyOfTheirNode(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: "z", corev1.LabelTopologyRegion: "r", "other": "x"}}}
	want := map[string]string{corev1.LabelTopologyZone: "z", corev1.LabelTopologyRegion: "r"}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	if err := passes(t, binding, Config{}, node, namespaceWith(nil)); err != nil || !maps.Equal(binding.Labels, want) {
		t.Errorf("a binding has the labels %v (%v)", binding.Labels, err)
	}
	pod := testPod()
	pod.Spec.NodeName, pod.Labels = "n", map[string]string{corev1.LabelTopologyZone: "mine"}
	if err := passes(t, pod, Config{}, node, namespaceWith(nil)); err != nil || !maps.Equal(pod.Labels, want) {
		t.Errorf("a pod that names its node has the labels %v (%v)", pod.Labels, err)
	}
}

func TestOptionalPluginsForPods(t *testing.T) {
	pod := testPod()
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "x:1", PullPolicy: corev1.PullNever}}}}
	if err := passes(t, pod, enable("AlwaysPullImages"), namespaceWith(nil)); err != nil || pod.Spec.Containers[0].ImagePullPolicy != corev1.PullAlways || pod.Spec.Volumes[0].Image.PullPolicy != corev1.PullAlways {
		t.Errorf("images are not always pulled: %v %v", pod.Spec, err)
	}
	pod = testPod()
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}}}
	wantRefusal(t, passes(t, pod, enable("LimitPodHardAntiAffinityTopology"), namespaceWith(nil)),
		`pods "p" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed`)
	selects := namespaceWith(map[string]string{annotationNodeSelector: "a=b"})
	pod = testPod()
	pod.Spec.NodeSelector = map[string]string{"x": "c"}
	if err := passes(t, pod, enable("PodNodeSelector"), selects); err != nil || !maps.Equal(pod.Spec.NodeSelector, map[string]string{"a": "b", "x": "c"}) {
		t.Errorf("the node selector is %v (%v)", pod.Spec.NodeSelector, err)
	}
	pod.Spec.NodeSelector["a"] = "c"
	wantRefusal(t, passes(t, pod, enable("PodNodeSelector"), selects), "pod node label selector conflicts with its namespace node label selector")
	pod = testPod()
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"x.com/gpu": resource.MustParse("1"), "cpu": resource.MustParse("1")}
	if err := passes(t, pod, enable("ExtendedResourceToleration"), namespaceWith(nil)); err != nil || pod.Spec.Tolerations[len(pod.Spec.Tolerations)-1].Key != "x.com/gpu" || len(pod.Spec.Tolerations) != 3 {
		t.Errorf("the tolerations are %v (%v)", pod.Spec.Tolerations, err)
	}
}

// The wanted texts are upstream's.
func TestChangedPullPoliciesAreRefused(t *testing.T) {
	pod := testPod()
	pod.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i", ImagePullPolicy: corev1.PullNever}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "x:1", PullPolicy: corev1.PullNever}}}}
	plugin := newAlwaysPullImages()
	err := plugin.(Validator).Validate(t.Context(), attributesOf(pod))
	want := `[pods "p" is forbidden: spec.initContainers[0].imagePullPolicy: Unsupported value: "Never": supported values: "Always", ` +
		`pods "p" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: "IfNotPresent": supported values: "Always", ` +
		`pods "p" is forbidden: spec.volumes[0].image.pullPolicy: Unsupported value: "Never": supported values: "Always"]`
	if err == nil || err.Error() != want {
		t.Errorf("what changed after the plugin: %v", err)
	}
	if err := plugin.(Mutator).Admit(t.Context(), attributesOf(pod)); err != nil {
		t.Fatal(err)
	}
	if err := plugin.(Validator).Validate(t.Context(), attributesOf(pod)); err != nil {
		t.Error(err)
	}
}

// A pod may be older than the plugin, and its pull policies are immutable.
func TestPodsOlderThanThePluginKeepTheirPullPolicies(t *testing.T) {
	volume := func(reference string) []corev1.Volume {
		return []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: reference, PullPolicy: corev1.PullNever}}}}
	}
	for what, c := range map[string]struct {
		subresource string
		change      func(*corev1.Pod)
		pulls       bool
	}{
		"a label":                   {"", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, false},
		"an image that the pod had": {"", func(p *corev1.Pod) { p.Spec.Containers[1].Image = "i" }, false},
		"a new image":               {"", func(p *corev1.Pod) { p.Spec.Containers[1].Image = "new" }, true},
		"a volume with a new image": {"", func(p *corev1.Pod) { p.Spec.Volumes = volume("new") }, true},
		"a removed volume":          {"", func(p *corev1.Pod) { p.Spec.Volumes = nil }, false},
		"an ephemeral container": {"ephemeralcontainers", func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "new"}}}
		}, false},
		"a status":                    {"status", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, false},
		"a status with another image": {"status", func(p *corev1.Pod) { p.Spec.Containers[1].Image = "new" }, false},
	} {
		old := testPod()
		old.Spec.Containers = append(old.Spec.Containers, corev1.Container{Name: "other", Image: "j", ImagePullPolicy: corev1.PullIfNotPresent})
		old.Spec.Volumes = volume("x:1")
		pod := old.DeepCopy()
		c.change(pod)
		a := attributesOf(pod)
		a.Operation, a.Subresource, a.OldObject = Update, c.subresource, old
		plugin := newAlwaysPullImages()
		if err := plugin.(Validator).Validate(t.Context(), a); (err != nil) != c.pulls {
			t.Errorf("%s: %v", what, err)
		}
		before := pod.DeepCopy()
		if err := plugin.(Mutator).Admit(t.Context(), a); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if changed := !equality.Semantic.DeepEqual(pod, before); changed != c.pulls {
			t.Errorf("%s: the pod is changed: %v", what, changed)
		}
	}
}

func TestNamespacesRestrictTolerations(t *testing.T) {
	namespace := namespaceWith(map[string]string{annotationDefaultTolerations: `[{"key":"d","operator":"Exists"}]`,
		annotationAllowedTolerations: `[{"key":"d","operator":"Exists"},{"key":"node.kubernetes.io/not-ready","operator":"Exists"},{"key":"node.kubernetes.io/unreachable","operator":"Exists"}]`})
	pod := testPod()
	if err := passes(t, pod, enable("PodTolerationRestriction"), namespace); err != nil || pod.Spec.Tolerations[len(pod.Spec.Tolerations)-1].Key != "d" {
		t.Errorf("the tolerations are %v (%v)", pod.Spec.Tolerations, err)
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "bad", Operator: corev1.TolerationOpExists})
	wantRefusal(t, passes(t, pod, enable("PodTolerationRestriction"), namespace), "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist")
}

func TestOptionalPluginsForOtherKinds(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Spec: corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}}}
	wantRefusal(t, passes(t, service, enable("DenyServiceExternalIPs"), namespaceWith(nil)), `services "s" is forbidden: Use of external IPs is denied by admission control`)
	wantRefusal(t, passes(t, service, enable("AlwaysDeny"), namespaceWith(nil)), "admission control is denying all modifications")
	if err := passes(t, service, enable("NamespaceAutoProvision", "AlwaysAdmit")); err != nil {
		t.Errorf("the namespace is not created: %v", err)
	}
}

func TestEventsHaveRateLimits(t *testing.T) {
	config := enable("EventRateLimit")
	if _, err := Default(t.Context(), clienttest.NewMemory(), config); err == nil {
		t.Error("the plugin runs without limits")
	}
	config.Files.EventLimits = []EventLimit{{Type: "Namespace", QPS: 1, Burst: 2}}
	chain, err := Default(t.Context(), clienttest.NewMemory(namespaceWith(nil)), config)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 100000 && err == nil; i++ {
		err = chain.Validate(t.Context(), attributesOf(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e"}}))
		if i < 2 && err != nil {
			t.Error(err)
		}
	}
	wantRefusal(t, err, "limit reached on type Namespace for key ns")
}

func TestPluginsReadSettingsFromFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("events.yaml", "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: 5, burst: 10}]}")
	files, err := LoadFiles(write("all.yaml", `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  path: events.yaml
- name: ResourceQuota
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{resource: pods, matchContains: [x]}]}
- name: PodNodeSelector
  configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b}}
- name: PodTolerationRestriction
  configuration: {apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, whitelist: [{key: w, operator: Exists}]}
- name: PodTolerationRestriction
  configuration: {of: a plugin that has its settings already}
- name: LimitRanger
  configuration: {of: a plugin that has none}
- name: Nobody
  path: not there
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: hooks}
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: /hooks}
- name: PodSecurity
  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: restricted}, exemptions: {namespaces: [free]}}
- name: ValidatingAdmissionPolicy
  path: not there
`), func(plugin string) bool { return plugin != "ValidatingAdmissionPolicy" })
	if err != nil {
		t.Fatal(err)
	}
	if len(files.Limited) != 1 || files.Limited[0].MatchContains[0] != "x" || files.NodeSelectors[clusterDefault] != "a=b" || files.Tolerations.Allowed[0].Key != "w" ||
		files.MutatingWebhooks != filepath.Join(dir, "hooks") || files.ValidatingWebhooks != "/hooks" {
		t.Errorf("the settings are %+v", files)
	}
	if len(files.EventLimits) != 1 || files.EventLimits[0].Burst != 10 || files.PodSecurity.Defaults.Enforce != "restricted" {
		t.Errorf("the settings are %+v", files)
	}
	wantRefusal(t, passes(t, testPod(), Config{Files: files}, namespaceWith(nil)), `violates PodSecurity "restricted:latest"`)
}

func everyPlugin(string) bool { return true }

func TestInvalidSettingsAreRefused(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
	of := func(plugin, settings string) string {
		return head + "plugins: [{name: " + plugin + ", configuration: " + settings + "}]\n"
	}
	const (
		limits = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration"
		quota  = "apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration"
	)
	for name, c := range map[string]struct{ text, want string }{
		"an unknown version":                    {strings.Replace(head, "v1", "v2", 1), `kind "AdmissionConfiguration" of "apiserver.config.k8s.io/v2", want AdmissionConfiguration of apiserver.config.k8s.io/v1`},
		"an unknown field":                      {head + "foo: 1\n", `unknown field "foo"`},
		"limits of another kind":                {of("EventRateLimit", "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Foo}"), `kind "Foo" of`},
		"limits of another version":             {of("EventRateLimit", "{apiVersion: eventratelimit.admission.k8s.io/v1, kind: Configuration}"), `want Configuration of eventratelimit.admission.k8s.io/v1alpha1`},
		"limits without a version":              {of("EventRateLimit", "{kind: Configuration}"), `kind "Configuration" of ""`},
		"limits with an unknown field":          {of("EventRateLimit", "{"+limits+", foo: 1, limits: [{type: Server, qps: 1, burst: 1}]}"), ""},
		"a limited resource without name":       {of("ResourceQuota", "{"+quota+", limitedResources: [{matchContains: [pods]}]}"), `limitedResources\[0\].resource: Required value`},
		"limited resources of other kinds":      {of("ResourceQuota", "{apiVersion: apiserver.config.k8s.io/v9, kind: ResourceQuotaConfiguration}"), `apiserver.config.k8s.io/v9`},
		"limited resources in the old version":  {of("ResourceQuota", "{apiVersion: resourcequota.admission.k8s.io/v1beta1, kind: Configuration}"), ""},
		"webhook settings without a kind":       {of("MutatingAdmissionWebhook", "{}"), `kind "" of ""`},
		"tolerations of another version":        {of("PodTolerationRestriction", "{apiVersion: x/v1, kind: Configuration}"), `x/v1`},
		"invalid tolerations":                   {of("PodTolerationRestriction", "{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{key: a b}]}"), `podtolerationrestriction.default\[0\].key: Invalid value: "a b"`},
		"settings of a plugin without settings": {of("LimitRanger", "{a: 1}"), ""},
		"settings of an unknown plugin":         {of("None", "{a: 1}"), ""},
		"selectors with an unknown field":       {of("PodNodeSelector", "{foo: {}}"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := LoadFiles(path, everyPlugin)
			if (err != nil) != (c.want != "") || err != nil && !regexp.MustCompile(c.want).MatchString(err.Error()) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestRunsFollowsDefaultsAndSwitches(t *testing.T) {
	for name, c := range map[string]struct {
		plugin          string
		enable, disable []string
		runs            bool
	}{
		"on by default":  {plugin: "PodSecurity", runs: true},
		"disabled":       {plugin: "PodSecurity", disable: []string{"PodSecurity"}},
		"off by default": {plugin: "EventRateLimit"},
		"enabled":        {plugin: "EventRateLimit", enable: []string{"EventRateLimit"}, runs: true},
	} {
		if got := Runs(c.plugin, c.enable, c.disable); got != c.runs {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestInvalidEventLimitsNameTheField(t *testing.T) {
	_, err := newEventRateLimit([]EventLimit{{Type: "Server", QPS: 1, Burst: 1}, {Type: "Foo", QPS: 0, Burst: -1, CacheSize: -1}})
	for _, want := range []string{`limits[1].type: Unsupported value: "Foo": supported values: "`, "limits[1].qps: Invalid value: 0: must be positive",
		"limits[1].burst: Invalid value: -1: must be positive", "limits[1].cacheSize: Invalid value: -1: must not be negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
