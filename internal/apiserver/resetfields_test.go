package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// ownedBy returns the fields that a manager owns after an apply: their names, those of metadata
// with the prefix "metadata.".
func ownedBy(out object, manager string) string {
	var names []string
	entries, _ := at(out, "metadata", "managedFields").([]any)
	for _, e := range entries {
		if at(e, "manager") != manager {
			continue
		}
		owned, _ := at(e, "fieldsV1").(object)
		for _, key := range slices.Sorted(maps.Keys(owned)) {
			inner, _ := owned[key].(object)
			for _, k := range slices.Sorted(maps.Keys(inner)) {
				names = append(names, strings.TrimPrefix(key, "f:")+"."+strings.TrimPrefix(k, "f:"))
			}
		}
	}
	return strings.Join(names, " ")
}

// certificateRequest returns a request of a user in these groups, in PEM, in base64.
func certificateRequest(t *testing.T, groups ...string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "one", Organization: groups}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// A writer does not own fields that its write cannot change.
func TestStatusWritesOwnOnlyWhatTheyCanChange(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	const meta = `metadata: {name: one, labels: {a: b}, annotations: {c: d}, ownerReferences: [{apiVersion: v1, kind: X, name: x, uid: u}]}`
	const all = "metadata.annotations metadata.labels metadata.ownerReferences"
	const limits = `{type: Limited, limited: {nominalConcurrencyShares: 1, limitResponse: {type: Reject}}}`
	for _, c := range []struct {
		name, path, kind, spec string
		sub, status, owned     string
	}{
		{"a deployment, without its labels", "/apis/apps/v1/namespaces/default/deployments", "apiVersion: apps/v1, kind: Deployment", `{selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}`,
			"status", "{replicas: 1}", "metadata.annotations metadata.ownerReferences status.replicas"},
		{"a volume, with its metadata", "/api/v1/persistentvolumes", "apiVersion: v1, kind: PersistentVolume", `{capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /a}}`, "status", "{phase: Bound}", all + " status.phase"},
		{"a pod, without its owners", "/api/v1/namespaces/default/pods", "apiVersion: v1, kind: Pod", `{containers: [{name: c, image: i}]}`, "status", "{phase: Running}", "metadata.annotations metadata.labels status.phase"},
		{"a priority level, without metadata", "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", "apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: PriorityLevelConfiguration", limits,
			"status", `{conditions: [{type: A, status: "True"}]}`, "status.conditions"},
		{"a range of addresses, without metadata", "/apis/networking.k8s.io/v1/servicecidrs", "apiVersion: networking.k8s.io/v1, kind: ServiceCIDR", `{cidrs: [10.1.0.0/16]}`,
			"status", `{conditions: [{type: A, status: "True", lastTransitionTime: "2024-01-01T00:00:00Z", reason: R, message: m}]}`, "status.conditions"},
		{"an API service, without metadata", "/apis/apiregistration.k8s.io/v1/apiservices", "apiVersion: apiregistration.k8s.io/v1, kind: APIService", `{group: one, version: v1, groupPriorityMinimum: 1, versionPriority: 1, service: {name: s, namespace: default}}`,
			"status", `{conditions: [{type: A, status: "True"}]}`, "status.conditions"},
		{"a custom resource, without metadata", crontabsPath, "apiVersion: stable.example.com/v1, kind: CronTab", `{cronSpec: a, replicas: 1}`, "status", "{replicas: 3}", "status.replicas"},
	} {
		t.Run(c.name, func(t *testing.T) {
			named, m := c.path+"/one", meta
			if strings.Contains(c.path, "apiservices") {
				named, m = c.path+"/v1.one", strings.Replace(meta, "name: one", "name: v1.one", 1)
			}
			made := m[:strings.Index(m, ", labels")] + "}"
			a.want(http.StatusCreated, "POST", c.path, "{"+c.kind+", "+made+", spec: "+c.spec+"}")
			out := a.want(http.StatusOK, "PATCH", named+"/"+c.sub+"?fieldManager=m&force=true", "{"+c.kind+", "+m+", spec: "+c.spec+", status: "+c.status+"}", "Content-Type", "application/apply-patch+yaml")
			if got := ownedBy(out, "m"); got != c.owned {
				t.Errorf("owns %s, want %s", got, c.owned)
			}
			if kept := at(out, "metadata", "annotations", "c") == nil; kept == strings.Contains(c.owned, "metadata.annotations") {
				t.Errorf("the annotations are %v", at(out, "metadata", "annotations"))
			}
		})
	}
}

// A certificate's request has no owner, because it never changes. Verdicts are written to
// /approval, certificates to /status.
func TestOwnersOfCertificateRequestFields(t *testing.T) {
	a := newAPI(t)
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	request := "{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: one, labels: {a: b}}, spec: {signerName: a.example/b, usages: [digital signature], request: " + certificateRequest(t) + "}"
	out := a.want(http.StatusCreated, "POST", path+"?fieldManager=maker", request+"}")
	if got := ownedBy(out, "maker"); got != "metadata.labels" {
		t.Errorf("its maker owns %q", got)
	}
	for _, c := range []struct{ sub, status, owned string }{
		{"approval", `{conditions: [{type: Approved, status: "True"}]}`, "metadata.labels status.conditions"},
		{"status", `{conditions: [{type: Approved, status: "True"}, {type: Failed, status: "True"}]}`, "metadata.labels"},
	} {
		out := a.want(http.StatusOK, "PATCH", path+"/one/"+c.sub+"?force=true&fieldManager="+c.sub, request+", status: "+c.status+"}", "Content-Type", "application/apply-patch+yaml")
		if got := ownedBy(out, c.sub); got != c.owned {
			t.Errorf("%s: owns %q, and not %q", c.sub, got, c.owned)
		}
	}
}

// A dry run answers as a read after the write would.
func TestDryRunOfACustomResourceUsesItsStorageVersion(t *testing.T) {
	a := newAPI(t)
	a.define(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sails.dry.example}
spec:
  group: dry.example
  scope: Cluster
  names: {plural: sails, singular: sail, kind: Sail, listKind: SailList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}, color: {type: string}}}}}
`)
	const path = "/apis/dry.example/v1beta1/sails"
	const sail = "{apiVersion: dry.example/v1beta1, kind: Sail, metadata: {name: one, selfLink: x}, size: 1, color: red}"
	merge := []string{"Content-Type", "application/merge-patch+json"}
	out := a.want(http.StatusCreated, "POST", path+"?dryRun=All", sail)
	if out["color"] != nil || out["size"] != 1.0 || at(out, "metadata", "selfLink") != nil || at(out, "metadata", "resourceVersion") != nil {
		t.Errorf("a created object: %v", out)
	}
	made := a.want(http.StatusCreated, "POST", path, sail)
	out = a.want(http.StatusOK, "PATCH", path+"/one?dryRun=All", "{size: 2, color: blue, metadata: {selfLink: link}}", merge...)
	if out["color"] != nil || out["size"] != 2.0 || at(out, "metadata", "resourceVersion") != at(made, "metadata", "resourceVersion") || at(out, "metadata", "selfLink") != "link" {
		t.Errorf("a changed object: %v", out)
	}
	for selector, code := range map[string]int{"metadata.namespace=x": http.StatusBadRequest, "metadata.name=one": http.StatusOK} {
		a.want(code, "GET", path+"?fieldSelector="+selector, "")
	}
}
