package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

func TestComponentsSeeCustomKinds(t *testing.T) {
	s := newTestServer(t)
	s.runInBackground(s.custom.Run)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	a := testAPI{t, h}
	a.define(crontabs)
	c, ctx := s.Client(auth.Component("tester")), t.Context()
	gvr := schema.GroupVersionResource{Group: "stable.example.com", Version: "v1", Resource: "crontabs"}
	whole, err := c.View(ctx, gvr, client.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	light, err := c.View(ctx, gvr, client.Scope{MetadataOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "stable.example.com/v1", "kind": "CronTab",
		"metadata": map[string]any{"name": "one"}, "spec": map[string]any{"cronSpec": "a", "odd": true}}}
	if _, err := c.Create(ctx, gvr, "default", u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	replicas := func() any {
		obj, ok := whole.Get("default", "one")
		if !ok {
			return nil
		}
		n, _, _ := unstructured.NestedFieldNoCopy(obj.(*unstructured.Unstructured).Object, "spec", "replicas")
		return n
	}
	if replicas() != int64(1) {
		t.Errorf("a view does not have the written object with defaults: %v", replicas())
	}
	if obj, ok := light.Get("default", "one"); !ok || obj.(*metav1.PartialObjectMetadata).UID == "" {
		t.Errorf("metadata alone: %v", obj)
	}
	list, err := c.List(ctx, gvr, "", metav1.ListOptions{})
	if err != nil || len(list.(*unstructured.UnstructuredList).Items) != 1 {
		t.Errorf("list: %v %v", list, err)
	}
	a.want(http.StatusOK, "PATCH", definitionsPath+"/crontabs.stable.example.com",
		`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/more","value":{"type":"string","default":"x"}}]`, "Content-Type", "application/json-patch+json")
	if _, err := c.Patch(ctx, gvr, "default", "one", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	a.eventually("the view follows after the definition has changed", func() bool { return replicas() == int64(2) })
	if obj, ok := whole.Get("default", "one"); !ok || obj.(*unstructured.Unstructured).Object["more"] != "x" {
		t.Errorf("objects lack the new definition's defaults: %v", obj)
	}
	if err := c.Delete(ctx, gvr, "default", "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.eventually("it is gone from the view", func() bool { _, ok := whole.Get("default", "one"); return !ok })
}

func TestApplyWithManagersOfADroppedVersion(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs + "  - {name: v0, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n")
	apply := []string{"Content-Type", "application/apply-patch+yaml"}
	const config = `{apiVersion: stable.example.com/%s, kind: CronTab, metadata: {name: one}, spec: {cronSpec: a, replicas: %d}}`
	old := strings.Replace(crontabsPath, "/v1/", "/v0/", 1)
	a.want(http.StatusCreated, "PATCH", old+"/one?fieldManager=first", fmt.Sprintf(config, "v0", 1), apply...)
	a.want(http.StatusOK, "PATCH", definitionsPath+"/crontabs.stable.example.com", `[{"op":"remove","path":"/spec/versions/1"}]`, "Content-Type", "application/json-patch+json")
	code, out, _ := a.do("PATCH", crontabsPath+"/one?fieldManager=second", fmt.Sprintf(config, "v1", 2), apply...)
	message, _ := out["message"].(string)
	if code != http.StatusInternalServerError || !strings.HasSuffix(message, "request to convert CR to an invalid group/version: stable.example.com/v0") {
		t.Errorf("%d %s", code, message)
	}
}

func TestDeprecatedVersionMetricsOmitUnknownSubresources(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs + "    deprecated: true\n")
	if resp, _ := fetch(t, a.URL+crontabsPath+"/one/strange"); resp.StatusCode != http.StatusNotFound || resp.Header.Get("Warning") == "" {
		t.Errorf("%s, %s", resp.Status, resp.Header)
	}
	fetch(t, a.URL+crontabsPath)
	_, page := fetch(t, a.URL+"/metrics")
	if !strings.Contains(page, `apiserver_requested_deprecated_apis{group="stable.example.com",removed_release="",resource="crontabs",subresource="",version="v1"} 1`) || strings.Contains(page, "strange") {
		t.Error("the metrics have an unknown subresource, or lack the known one")
	}
}
