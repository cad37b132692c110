package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// at reads the object or its list at some revision.
func (c *scenario) at() {
	revision := oneOf(c.r, []string{"own", "own", "own", "0", "", "x", "-1"})
	match := oneOf(c.r, []string{"", "", "Exact", "NotOlderThan", "Newer"})
	limit := oneOf(c.r, []string{"", "", "500"})
	path := oneOf(c.r, []string{c.path(), c.entry.collection(c.entry.version, c.namespace), c.entry.collection(c.entry.version, c.namespace), c.entry.allNamespaces()})
	accept := oneOf(c.r, []string{"", "", mediaProtobuf, "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"})
	query := url.Values{"labelSelector": {"case=" + c.name}}
	for k, v := range map[string]string{"resourceVersionMatch": match, "limit": limit} {
		if v != "" {
			query.Set(k, v)
		}
	}
	c.both("at", fmt.Sprintf("revision %s %s", revision, query.Encode()), func(i int) request {
		q, _ := url.ParseQuery(query.Encode())
		switch revision {
		case "":
		case "own":
			own, _ := dig(c.last[i]["metadata"], "resourceVersion").(string)
			q.Set("resourceVersion", own)
		default:
			q.Set("resourceVersion", revision)
		}
		return request{method: http.MethodGet, path: path + "?" + q.Encode(), accept: accept}
	})
}

// allNamespaces returns the collection of all namespaces.
func (e *entry) allNamespaces() string { return prefix(e.group, e.version) + "/" + e.resource }

// asOtherUser sends a request as a user with few rights or none.
func (c *scenario) asOtherUser() {
	header := map[string]string{"Impersonate-User": oneOf(c.r, []string{"nobody", "system:serviceaccount:" + c.namespace + ":default", "system:anonymous", "system:node:n", "système", ""})}
	switch c.r.IntN(5) {
	case 0:
		header["Impersonate-Group"] = oneOf(c.r, []string{"system:authenticated", "system:masters", "system:nodes", "some", ""})
	case 1:
		header["Impersonate-Uid"] = "u"
	case 2:
		header["Impersonate-Extra-Scopes"] = "a"
	}
	if c.r.IntN(8) == 0 {
		delete(header, "Impersonate-User")
	}
	list := c.entry.collection(c.entry.version, c.namespace)
	path := oneOf(c.r, []string{c.path(), list, c.path() + "/status", c.path() + "/scale", c.path() + "/nothing", c.entry.allNamespaces(), "/apis", "/nowhere"})
	method := oneOf(c.r, []string{http.MethodGet, http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete})
	query := url.Values{"labelSelector": {"case=" + c.name}}
	if method != http.MethodGet {
		query.Set("dryRun", "All")
	}
	if c.r.IntN(4) == 0 {
		query.Set("fieldSelector", "metadata.name="+c.name)
	}
	body := c.freshNamed(c.name)
	c.both("someone else", fmt.Sprintf("%s %v", method, header), func(int) request {
		r := c.write(method, path+"?"+query.Encode(), body, "application/json")
		if method == http.MethodPatch {
			r.contentType, r.body = "application/merge-patch+json", []byte(`{"metadata":{"labels":{"else":"yes"}}}`)
		}
		r.header, r.brief = header, path == "/apis"
		return r
	})
}

// inOtherNamespace sends a request in a namespace that is not the object's.
func (c *scenario) inOtherNamespace() {
	if !c.entry.namespaced {
		c.at()
		return
	}
	space := oneOf(c.r, []string{"nowhere", "default", "UPPER", "a.b", "kube-system"})
	obj := c.freshNamed(c.name)
	if own := oneOf(c.r, []string{"", c.namespace, space}); own != "" {
		obj["metadata"].(map[string]any)["namespace"] = own
	}
	list := c.entry.collection(c.entry.version, space)
	method := oneOf(c.r, []string{http.MethodGet, http.MethodPost, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete})
	path := list
	if method != http.MethodPost && c.r.IntN(3) > 0 {
		path += "/" + c.name
	}
	query := url.Values{"labelSelector": {"case=" + c.name}}
	if method != http.MethodGet {
		query.Set("dryRun", "All")
	}
	c.both("elsewhere", method+" "+path, func(int) request {
		r := c.write(method, path+"?"+query.Encode(), obj, "application/json")
		if method == http.MethodPatch {
			r.contentType = "application/merge-patch+json"
		}
		return r
	})
}

// duplicateFields sends fields twice, in other letter case, and unknown fields.
func (c *scenario) duplicateFields() {
	obj := c.freshNamed(c.name)
	method, path := http.MethodPut, c.path()
	if c.r.IntN(2) == 0 {
		method, path = http.MethodPost, c.entry.collection(c.entry.version, c.namespace)
		obj["metadata"].(map[string]any)["name"] = c.name + "-d"
	}
	text := compact(obj)
	once := oneOf(c.r, []string{`"kind":`, `"metadata":`, `"name":`, `"apiVersion":`, `"labels":`, `"case":`, `"spec":`})
	more := oneOf(c.r, []string{`"kind":"x",`, `"metadata":{},`, `"name":"x",`, `"unknown":1,`, `"Kind":"x",`, `"NAME":"x",`, `"Metadata":{"name":"x"},`, `"labels":null,`, `"spec":{},`, `"Spec":{"a":1},`, `"a":{"b":[{"c":1}]},`, `"":1,`, `"unknown":1,"unknown":2,`})
	text = strings.Replace(text, once, more+once, 1+c.r.IntN(2))
	query := "?dryRun=All" + oneOf(c.r, []string{"", "&fieldValidation=Strict", "&fieldValidation=Warn", "&fieldValidation=Ignore", "&fieldValidation=x"})
	media := oneOf(c.r, []string{"application/json", "application/json", "application/yaml"})
	c.both("doubled", more+once+" "+media, func(int) request {
		return request{method: method, path: path + query, contentType: media, body: []byte(text)}
	})
}

// asProtobuf writes the object in protobuf, edited or not, and requests some format for the answer.
func (c *scenario) asProtobuf() {
	objs, how := c.edited(c.specFields()...)
	var bodies [2][]byte
	for i, o := range objs {
		if bodies[i] = toWire(o); bodies[i] == nil {
			c.at()
			return
		}
	}
	path := c.path() + oneOf(c.r, []string{"", "", "/status"}) + "?fieldValidation=Strict" + oneOf(c.r, []string{"", "&dryRun=All"})
	accept := oneOf(c.r, []string{mediaProtobuf, "", mediaProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"})
	c.both("wired", how, func(i int) request {
		return request{method: http.MethodPut, path: path, contentType: mediaProtobuf, accept: accept, body: bodies[i]}
	})
}
