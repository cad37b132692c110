package main

import (
	"net/http"
)

// part reads or writes the object's subresources.
func (c *scenario) part() {
	list := parts[c.entry.kind]
	if len(list) == 0 {
		c.status()
		return
	}
	name := oneOf(c.r, list)
	method := oneOf(c.r, []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch})
	body := oneOf(c.r, bodies[name])
	media := "application/json"
	if method == http.MethodPatch {
		media = oneOf(c.r, []string{"application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"})
	}
	query := oneOf(c.r, []string{"", "?dryRun=All", "?dryRun=All&fieldManager=m&force=true", "?fieldValidation=Strict", queries[name]})
	c.both(name, method+" "+body, func(int) request {
		return request{method: method, path: c.path() + "/" + name + query, contentType: media, body: []byte(body)}
	})
	if c.r.IntN(2) == 0 {
		c.both("get", "", func(int) request { return request{method: http.MethodGet, path: c.path()} })
	}
}

// parts lists subresources of each kind, and some that the kind does not have.
var parts = map[string][]string{
	"Pod":                       {"binding", "eviction", "ephemeralcontainers", "resize", "log", "status", "exec", "attach", "portforward", "proxy", "scale"},
	"Deployment":                {"scale", "scale", "status", "rollback"},
	"ReplicaSet":                {"scale", "status"},
	"StatefulSet":               {"scale", "status"},
	"ReplicationController":     {"scale", "status"},
	"ServiceAccount":            {"token", "token", "status"},
	"CertificateSigningRequest": {"approval", "status"},
	"Namespace":                 {"finalize", "status"},
	"Service":                   {"proxy", "status"},
	"Node":                      {"proxy", "status"},
	"Widget":                    {"scale", "status", "scale", "nothing"},
	"Gadget":                    {"scale", "status"},
}

var queries = map[string]string{
	"log": "?container=a&tailLines=-1", "exec": "?command=a&container=b&stdout=1", "attach": "?container=a", "portforward": "?ports=x", "proxy": "?path=x",
}

var bodies = map[string][]string{
	"binding": {`{"target":{"kind":"Node","name":"n"}}`, `{"target":{"name":""}}`, `{"target":{"kind":"Pod","name":"n"}}`, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"other"},"target":{"name":"n"}}`, `{}`, `{"kind":"Pod","apiVersion":"v1"}`, `{"target":{"kind":"Node","name":"a/b"}}`},
	"eviction": {`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"x"}}`, `{"apiVersion":"policy/v1","kind":"Eviction"}`, `{}`, `{"apiVersion":"policy/v1beta1","kind":"Eviction"}`, `{"apiVersion":"policy/v1","kind":"Eviction","deleteOptions":{"dryRun":["All"]}}`,
		`{"apiVersion":"policy/v1","kind":"Eviction","deleteOptions":{"preconditions":{"uid":"a"}}}`, `{"apiVersion":"policy/v1","kind":"Eviction","deleteOptions":{"gracePeriodSeconds":-1}}`},
	"ephemeralcontainers": {`{"spec":{"ephemeralContainers":[{"name":"e","image":"i"}]}}`, `{"spec":{"ephemeralContainers":[{"name":"e","image":"i","targetContainerName":"nobody"}]}}`, `{"spec":{"ephemeralContainers":[{"name":"E","ports":[{"containerPort":1}]}]}}`, `{"spec":{"nodeName":"x"}}`, `{}`, `{"spec":{"ephemeralContainers":[]}}`},
	"resize":              {`{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"2m"}}}]}}`, `{"spec":{"containers":[{"name":"a","image":"other"}]}}`, `{"spec":{"containers":[{"name":"nobody"}]}}`, `{}`, `{"spec":{"containers":[{"name":"a","resources":{"limits":{"memory":"-1"}}}]}}`},
	"log":                 {""}, "exec": {""}, "attach": {""}, "portforward": {""}, "proxy": {""}, "rollback": {"{}"}, "nothing": {"{}"},
	"status": {`{"status":{}}`, `{"status":null}`, `{}`, `{"status":{"phase":"Running"}}`, `{"status":{"conditions":[{"type":"A","status":"True"}]}}`, `{"metadata":{"labels":{"s":"t"}},"status":{"replicas":1}}`, `{"status":{"replicas":-1}}`, `{"status":"x"}`, `{"spec":{"replicas":9}}`},
	"scale": {`{"spec":{"replicas":3}}`, `{"spec":{"replicas":-1}}`, `{"spec":{"replicas":"x"}}`, `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":2}}`, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"other"},"spec":{"replicas":2}}`, `{"apiVersion":"autoscaling/v2","kind":"Scale","spec":{"replicas":2}}`,
		`{}`, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"resourceVersion":"1"},"spec":{"replicas":4}}`, `{"spec":{"replicas":2147483648}}`, `{"status":{"replicas":9}}`},
	"token": {`{}`, `{"spec":{"audiences":["a"]}}`, `{"spec":{"expirationSeconds":1}}`, `{"spec":{"expirationSeconds":601}}`, `{"spec":{"expirationSeconds":99999999999}}`, `{"spec":{"boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"nobody"}}}`, `{"spec":{"boundObjectRef":{"kind":"Thing","apiVersion":"v1","name":"a"}}}`, `{"metadata":{"name":"other"}}`, `{"kind":"Pod","apiVersion":"v1"}`,
		`{"spec":{"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"nobody","uid":"x"}}}`, `{"spec":{"boundObjectRef":{"kind":"Node","apiVersion":"v1","name":"nobody"}}}`},
	"approval": {`{"status":{"conditions":[{"type":"Approved","status":"True","reason":"r"}]}}`, `{"status":{"conditions":[{"type":"Denied","status":"True"}]}}`, `{"status":{"conditions":[{"type":"Approved","status":"True"},{"type":"Denied","status":"True"}]}}`, `{"status":{"conditions":[{"type":"Approved","status":"False"}]}}`, `{}`, `{"status":{"certificate":"YQ=="}}`},
	"finalize": {`{"spec":{"finalizers":[]}}`, `{"spec":{"finalizers":["kubernetes","a.example/f"]}}`, `{"spec":{"finalizers":["x"]}}`, `{}`},
}
