package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/policy"
	"github.com/knarr-project/knarr/internal/admission/webhook"
	"github.com/knarr-project/knarr/internal/auth"
)

// pluginRequest shows the effect of an admission plugin: the answer has the text if the plugin is
// on, and lacks it if it is off.
type pluginRequest struct {
	who, method, path, body string
	text                    string
}

// pluginObjects are created before any plugin is on.
var pluginObjects = []struct{ method, path, body string }{
	{"POST", "/api/v1/namespaces", `{"metadata": {"name": "ns"}}`},
	{"POST", "/api/v1/namespaces", `{"metadata": {"name": "limits"}}`},
	{"POST", "/api/v1/namespaces", `{"metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}`},
	{"POST", "/api/v1/namespaces", `{"metadata": {"name": "placed", "annotations": {"scheduler.alpha.kubernetes.io/node-selector": "disk=fast",
		"scheduler.alpha.kubernetes.io/defaultTolerations": "[{\"key\": \"ours\", \"operator\": \"Exists\"}]"}}}`},
	{"POST", "/api/v1/namespaces/ns/serviceaccounts", `{"metadata": {"name": "default"}}`},
	{"POST", "/api/v1/namespaces/limits/serviceaccounts", `{"metadata": {"name": "default"}}`},
	{"POST", "/api/v1/namespaces/strict/serviceaccounts", `{"metadata": {"name": "default"}}`},
	{"POST", "/api/v1/namespaces/placed/serviceaccounts", `{"metadata": {"name": "default"}}`},
	{"POST", "/api/v1/namespaces/limits/limitranges", `{"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "123m"}}]}}`},
	{"POST", "/api/v1/namespaces/ns/resourcequotas", `{"metadata": {"name": "q"}, "spec": {"hard": {"count/podtemplates": "0"}}}`},
	{"PATCH", "/api/v1/namespaces/ns/resourcequotas/q/status", `{"status": {"hard": {"count/podtemplates": "0"}, "used": {"count/podtemplates": "0"}}}`},
	{"POST", "/apis/storage.k8s.io/v1/storageclasses", `{"metadata": {"name": "usual", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"}`},
	{"POST", "/apis/networking.k8s.io/v1/ingressclasses", `{"metadata": {"name": "usual", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}, "spec": {"controller": "a.com/b"}}`},
	{"POST", "/api/v1/namespaces/ns/persistentvolumeclaims", `{"metadata": {"name": "bound"}, "spec": {"storageClassName": "usual", "volumeName": "v", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}`},
	{"PATCH", "/api/v1/namespaces/ns/persistentvolumeclaims/bound/status", `{"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}`},
	{"POST", "/api/v1/nodes", `{"metadata": {"name": "small", "labels": {"topology.kubernetes.io/zone": "north", "kubernetes.io/os": "linux"}}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}}`},
	{"PATCH", "/api/v1/nodes/small/status", `{"status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}}`},
	{"POST", "/api/v1/namespaces/ns/pods", `{"metadata": {"name": "bound"}, "spec": {"nodeName": "small", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}`},
	{"POST", "/api/v1/namespaces/ns/pods", `{"metadata": {"name": "level"}, "spec": {"nodeName": "small", "resources": {"requests": {"cpu": "1"}}, "containers": [{"name": "c", "image": "i"}]}}`},
	{"POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", `{"metadata": {"name": "csr"}, "spec": {"signerName": "a.com/b", "usages": ["client auth"], "request": "REQUEST"}}`},
	{"POST", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", `{"metadata": {"name": "p"}, "spec": {"reinvocationPolicy": "Never", "failurePolicy": "Fail",
		"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]},
		"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {\"by\": \"a-policy\"}}}"}}]}}`},
	{"POST", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", `{"metadata": {"name": "b"}, "spec": {"policyName": "p"}}`},
	{"POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", `{"metadata": {"name": "p"}, "spec": {"failurePolicy": "Fail",
		"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["endpoints"]}]},
		"validations": [{"expression": "false", "message": "never"}]}}`},
	{"POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", `{"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}`},
	{"POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", `{"metadata": {"name": "w"}, "webhooks": [{"name": "mutating.a.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
		"clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["replicationcontrollers"]}]}]}`},
	{"POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{"metadata": {"name": "w"}, "webhooks": [{"name": "validating.a.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
		"clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["controllerrevisions"]}]}]}`},
}

const (
	podsOfNS = "/api/v1/namespaces/ns/pods"
	plainPod = `{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`
	csrs     = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
)

func podWith(spec string) string {
	return `{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], ` + spec + `}}`
}

var pluginRequests = map[string]pluginRequest{
	"NamespaceLifecycle":           {"", "POST", "/api/v1/namespaces/none/configmaps", `{"metadata": {"name": "c"}}`, `namespaces \"none\" not found`},
	"LimitRanger":                  {"", "POST", "/api/v1/namespaces/limits/pods", plainPod, `"cpu":"123m"`},
	"ServiceAccount":               {"", "POST", podsOfNS, plainPod, `"serviceAccountName":"default"`},
	"NodeRestriction":              {"system:node:a system:nodes", "POST", "/api/v1/nodes", `{"metadata": {"name": "b"}}`, `node \"a\" is not allowed to`},
	"TaintNodesByCondition":        {"", "POST", "/api/v1/nodes", `{"metadata": {"name": "b"}}`, `"key":"node.kubernetes.io/not-ready"`},
	"PodSecurity":                  {"", "POST", "/api/v1/namespaces/strict/pods", plainPod, `violates PodSecurity`},
	"Priority":                     {"", "POST", podsOfNS, podWith(`"priorityClassName": "none"`), `no PriorityClass with name none was found`},
	"DefaultTolerationSeconds":     {"", "POST", podsOfNS, plainPod, `"key":"node.kubernetes.io/unreachable"`},
	"DefaultStorageClass":          {"", "POST", "/api/v1/namespaces/ns/persistentvolumeclaims", `{"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}`, `"storageClassName":"usual"`},
	"StorageObjectInUseProtection": {"", "POST", "/api/v1/namespaces/ns/persistentvolumeclaims", `{"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}`, `kubernetes.io/pvc-protection`},
	"PersistentVolumeClaimResize":  {"", "PATCH", "/api/v1/namespaces/ns/persistentvolumeclaims/bound", `{"spec": {"resources": {"requests": {"storage": "2Gi"}}}}`, `only dynamically provisioned pvc can be resized`},
	"RuntimeClass":                 {"", "POST", podsOfNS, podWith(`"runtimeClassName": "none"`), `RuntimeClass \"none\" not found`},
	"CertificateApproval":          {"", "PATCH", csrs + "/csr/approval", `{"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r"}]}}`, `user not permitted to approve requests`},
	"CertificateSigning":           {"", "PATCH", csrs + "/csr/status", `{"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "r"}]}}`, `user not permitted to sign requests`},
	"CertificateSubjectRestriction": {"", "POST", csrs, `{"metadata": {"name": "c"}, "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "request": "REQUEST"}}`,
		`signer with system:masters group is not allowed`},
	"DefaultIngressClass":                  {"", "POST", "/apis/networking.k8s.io/v1/namespaces/ns/ingresses", `{"metadata": {"name": "i"}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 1}}}}}`, `"ingressClassName":"usual"`},
	"PodTopologyLabels":                    {"", "POST", podsOfNS, podWith(`"nodeName": "small"`), `"topology.kubernetes.io/zone":"north"`},
	"NodeDeclaredFeatureValidator":         {"", "PATCH", podsOfNS + "/level/resize", `{"spec": {"resources": {"requests": {"cpu": "1500m"}}}}`, `which are not available on node`},
	"PodResizeValidator":                   {"", "PATCH", podsOfNS + "/bound/resize", `{"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}`, `node didn't have enough allocatable resources`},
	"MutatingAdmissionPolicy":              {"", "POST", "/api/v1/namespaces/ns/secrets", `{"metadata": {"name": "s"}}`, `"by":"a-policy"`},
	"ValidatingAdmissionPolicy":            {"", "POST", "/api/v1/namespaces/ns/endpoints", `{"metadata": {"name": "e"}}`, `ValidatingAdmissionPolicy 'p' with binding 'b' denied request: never`},
	"MutatingAdmissionWebhook":             {"", "POST", "/api/v1/namespaces/ns/replicationcontrollers", `{"metadata": {"name": "r"}, "spec": {"replicas": 0, "selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}`, `failed calling webhook \"mutating.a.com\"`},
	"ValidatingAdmissionWebhook":           {"", "POST", "/apis/apps/v1/namespaces/ns/controllerrevisions", `{"metadata": {"name": "r"}, "revision": 1, "data": {"a": "b"}}`, `failed calling webhook \"validating.a.com\"`},
	"ResourceQuota":                        {"", "POST", "/api/v1/namespaces/ns/podtemplates", `{"metadata": {"name": "t"}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}`, `exceeded quota: q`},
	"AlwaysDeny":                           {"", "POST", "/api/v1/namespaces/ns/configmaps", `{"metadata": {"name": "c"}}`, `admission control is denying all modifications`},
	"AlwaysPullImages":                     {"", "POST", podsOfNS, `{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "imagePullPolicy": "Never"}]}}`, `"imagePullPolicy":"Always"`},
	"DenyServiceExternalIPs":               {"", "POST", "/api/v1/namespaces/ns/services", `{"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}], "externalIPs": ["192.0.2.7"]}}`, `Use of external IPs is denied`},
	"ExtendedResourceToleration":           {"", "POST", podsOfNS, `{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"a.com/gpu": "1"}}}]}}`, `"key":"a.com/gpu"`},
	"ImagePolicyWebhook":                   {"", "POST", podsOfNS, plainPod, `127.0.0.1:1`},
	"LimitPodHardAntiAffinityTopology":     {"", "POST", podsOfNS, podWith(`"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}]}}`), `but only key kubernetes.io/hostname is allowed`},
	"NamespaceExists":                      {"", "POST", "/api/v1/namespaces/none/configmaps", `{"metadata": {"name": "c"}}`, `namespaces \"none\" not found`},
	"OwnerReferencesPermissionEnforcement": {"", "POST", "/api/v1/namespaces/ns/configmaps", `{"metadata": {"name": "c", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "blockOwnerDeletion": true}]}}`, `cannot set blockOwnerDeletion`},
	"PodNodeSelector":                      {"", "POST", "/api/v1/namespaces/placed/pods", plainPod, `"disk":"fast"`},
	"PodTolerationRestriction":             {"", "POST", "/api/v1/namespaces/placed/pods", plainPod, `"key":"ours"`},
}

// pluginsWithoutRequest are the plugins that a request cannot show, with the reason.
var pluginsWithoutRequest = map[string]string{
	"AlwaysAdmit":              "it lets everything pass",
	"ClusterTrustBundleAttest": "its kind is behind a feature gate that is off by default",
	"EventRateLimit":           "its limit is one of time: TestEventsAreBounded of package admission",
	"JobValidation":            "its field is behind a feature gate that is off by default",
	"NamespaceAutoProvision":   "what it makes would stay: TestOptionalPluginsForOtherKinds of package admission",
	"PodGroupProtection":       "its kind is behind a feature gate that is off by default",
	"PodGroupWorkloadExists":   "its kind is behind a feature gate that is off by default",
}

// TestEachAdmissionPluginCanBeTurnedOnAndOff: every plugin shows in a request while it is on, and
// no longer when the flag turns it off.
func TestEachAdmissionPluginCanBeTurnedOnAndOff(t *testing.T) {
	s := newTestServer(t, withServices)
	if err := s.boot.create(t.Context(), s.boot.objects()); err != nil {
		t.Fatal(err)
	}
	csr := certificateRequest(t, auth.GroupMasters)
	ask := func(who, method, path, body string) (int, string) {
		r := httptest.NewRequest(method, path, strings.NewReader(strings.ReplaceAll(body, "REQUEST", csr)))
		r.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			r.Header.Set("Content-Type", "application/strategic-merge-patch+json")
		}
		r.Header.Set("X-Test-User", who)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, o := range pluginObjects {
		if code, text := ask("", o.method, o.path, o.body); code >= 300 {
			t.Fatalf("%s %s: %d %s", o.method, o.path, code, text)
		}
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, own := t.Context(), s.ownClient()
	policies := policy.Config{Client: own, Served: s.Served(), Authorizer: allowAll{}}
	hooks := webhook.Config{Client: own, Served: s.Served(), Authorizer: allowAll{}}
	use := func(t *testing.T, ctx context.Context, enable, disable []string) {
		t.Helper()
		c := admission.Config{
			Enable: enable, Disable: disable, Authorizer: auth.Masters{},
			MutatingPolicy: policy.NewMutating(ctx, policies), ValidatingPolicy: policy.NewValidating(ctx, policies),
			MutatingWebhook: webhook.NewMutating(ctx, hooks), ValidatingWebhook: webhook.NewValidating(ctx, hooks),
		}
		if slices.Contains(enable, "EventRateLimit") {
			c.Files.EventLimits = []admission.EventLimit{{Type: "Server", QPS: 1, Burst: 1}}
		}
		if slices.Contains(enable, "ImagePolicyWebhook") {
			c.Files.ImagePolicy = &admission.ImagePolicy{KubeConfigFile: kubeconfig, RetryBackoff: -1}
		}
		chain, err := admission.Default(ctx, own, c)
		if err != nil {
			t.Fatal(err)
		}
		s.Use(Security{Authenticator: nameGroupAuthenticator{}, Authorizer: allowAll{}, Admission: chain})
	}
	for _, name := range admission.Names {
		request, shows := pluginRequests[name]
		if _, excused := pluginsWithoutRequest[name]; excused == shows {
			t.Errorf("%s has a request, or a reason to have none: not both", name)
		}
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			var enable []string
			if slices.Contains(admission.OffByDefault, name) {
				enable = []string{name}
			}
			for _, on := range []bool{true, false} {
				var disable []string
				switch {
				case on:
				case enable == nil:
					disable = []string{name}
				default:
					enable = nil
				}
				if name == "NamespaceExists" {
					disable = append(disable, "NamespaceLifecycle") // its answer is the same
				}
				use(t, ctx, enable, disable)
				if !shows {
					continue // only its name is checked
				}
				code, text := ask(request.who, request.method, request.path+"?dryRun=All", request.body)
				if strings.Contains(text, request.text) != on {
					t.Errorf("on %v: %d %s", on, code, text)
				}
			}
		})
	}
}
