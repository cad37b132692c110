package check_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/check"
)

// common are the kinds whose fields the examples cover, with their types.
var common = []string{
	"Pod", "PodTemplate", "ReplicationController", "Service", "Endpoints", "PersistentVolume", "PersistentVolumeClaim", "ConfigMap", "Secret",
	"ServiceAccount", "ResourceQuota", "LimitRange", "Namespace", "Node", "Event.v1", "Event.events.k8s.io/v1",
	"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob",
	"Ingress", "IngressClass", "NetworkPolicy", "EndpointSlice", "StorageClass", "VolumeAttributesClass", "CSIDriver",
	"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "HorizontalPodAutoscaler.autoscaling/v2", "HorizontalPodAutoscaler.autoscaling/v1",
	"PodDisruptionBudget", "PriorityClass", "RuntimeClass", "Lease", "CertificateSigningRequest",
	"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "CustomResourceDefinition", "APIService",
	"PriorityLevelConfiguration", "FlowSchema", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate",
}

func commonKinds(t *testing.T, set *check.SchemaSet) (list []schema.GroupVersionKind) {
	t.Helper()
	for _, name := range common {
		name, version, _ := strings.Cut(name, ".")
		gvk, err := set.Kind(name, version)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, gvk)
	}
	return list
}

func schemas(t *testing.T) *check.SchemaSet {
	t.Helper()
	set, err := check.Schemas(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestExamplesHaveNoErrors(t *testing.T) {
	report, err := check.Run(t.Context(), check.Options{Files: []string{"examples"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Severity == check.Error {
			t.Errorf("%s:%d: %s", f.File, f.Line, f.Text())
		}
	}
	size := 0
	for _, data := range check.Examples() {
		size += len(data)
	}
	if size > 200_000 {
		t.Errorf("the examples have %d bytes; the binary has room for 200,000", size)
	}
}

// TestFieldsHaveExamples compares the fields without an example with testdata/without-example.txt.
// The list may only shrink; -update writes it.
func TestFieldsHaveExamples(t *testing.T) {
	set := schemas(t)
	missing, all := set.Missing(commonKinds(t, set))
	const name = "testdata/without-example.txt"
	if *update {
		if err := os.WriteFile(name, []byte(strings.Join(missing, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(string(data))
	for _, field := range missing {
		if !slices.Contains(known, field) {
			t.Errorf("%s has no example; add it to internal/check/examples", field)
		}
	}
	for _, field := range known {
		if !slices.Contains(missing, field) {
			t.Errorf("%s has an example; take it from %s", field, name)
		}
	}
	share := 100 * float64(all-len(missing)) / float64(all)
	t.Logf("%d of %d fields have an example: %.1f %%", all-len(missing), all, share)
	if share < 94 {
		t.Errorf("%.1f %% of the fields have an example", share)
	}
}

// TestEachFieldIsExplained explains each field of the common kinds, and checks that the fields of
// the shown examples exist and have values of the right type.
func TestEachFieldIsExplained(t *testing.T) {
	set := schemas(t)
	explained := map[string]bool{}
	var fragments bytes.Buffer
	var visit func(gvk schema.GroupVersionKind, path string, depth int)
	visit = func(gvk schema.GroupVersionKind, path string, depth int) {
		e, err := set.Explain(gvk, path)
		if err != nil {
			t.Errorf("%s %s: %v", gvk, path, err)
			return
		}
		if err := e.Write(&bytes.Buffer{}); err != nil {
			t.Error(err)
		}
		if e.Type == "" || e.Type == "any" && !strings.Contains(path, "openAPIV3Schema") && !strings.Contains(path, "parameters") {
			t.Errorf("%s.%s has the type %q", gvk.Kind, path, e.Type)
		}
		if e.Example != "" && !strings.Contains(e.Example, "# ") && !explained[e.Example] {
			explained[e.Example] = true
			fragments.WriteString(e.Example + "---\n")
		}
		if depth == 0 {
			return
		}
		for _, f := range e.Fields {
			if f.Name != "status" && f.Name != "metadata" && f.Name != "managedFields" {
				visit(gvk, strings.TrimPrefix(path+"."+f.Name, "."), depth-1)
			}
		}
	}
	for _, gvk := range commonKinds(t, set) {
		depth := 5
		if gvk.Kind == "Pod" {
			depth = 7
		}
		visit(gvk, "", depth)
	}
	if len(explained) < 700 {
		t.Errorf("%d examples", len(explained))
	}
	report, err := check.Run(t.Context(), check.Options{Files: []string{"-"}, Stdin: &fragments})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Message == "unknown field" || strings.HasPrefix(f.Message, "found ") || strings.Contains(f.Message, "YAML") {
			t.Errorf("%d: %s", f.Line, f.Text())
		}
	}
}

func TestExplainNamesAllowedValuesAndDefaults(t *testing.T) {
	dir := t.TempDir()
	crds := filepath.Join(dir, "boats.yaml")
	if err := os.WriteFile(crds, []byte(boats), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := check.Schemas(t.Context(), []string{crds})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ kind, path, want string }{
		{"pod", "spec.restartPolicy", "Allowed\n  Always\n  Never"},
		{"pod", "spec.restartPolicy", "Default: \"Always\""},
		{"po", "spec.containers[0].terminationMessagePath", "Default: \"/dev/termination-log\""},
		{"deploy", "spec.revisionHistoryLimit", "Default: 10"},
		{"deployments", "spec.template.spec.containers.resources.limits", "map of quantity"},
		{"service", "spec.ports", "port*"},
		{"configmap", "data.greeting", "ConfigMap.data.greeting (v1): text"},
		{"boat", "spec.seats", "How many sit in it."},
		{"boat", "spec.seats", "seats: 1"},
		{"boat", "spec.size", "integer or text"},
	} {
		gvk, err := set.Kind(c.kind, "")
		if err != nil {
			t.Fatal(err)
		}
		e, err := set.Explain(gvk, c.path)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := e.Write(&out); err != nil || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s.%s: %v, got %s\nwant %q", c.kind, c.path, err, out.String(), c.want)
		}
	}
	if _, err := set.Kind("deploymnt", ""); err == nil || !strings.Contains(err.Error(), "did you mean deployment") {
		t.Errorf("a misspelt kind: %v", err)
	}
	pod, err := set.Kind("pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Explain(pod, "spec.container.image"); err == nil || !strings.Contains(err.Error(), "did you mean containers?") {
		t.Errorf("a misspelt field: %v", err)
	}
}
