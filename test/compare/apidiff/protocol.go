package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const mediaProtobuf = "application/vnd.kubernetes.protobuf"

// wire is the protobuf serializer of both sides.
var wire = func() *protobuf.Serializer {
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			panic(err)
		}
	}
	return protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
}()

// fromWire converts a protobuf answer to JSON; an undecodable answer becomes text.
func fromWire(data []byte) any {
	obj, gvk, err := wire.Decode(data, nil, nil)
	if err != nil {
		return map[string]any{"protobuf": err.Error()}
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return map[string]any{"protobuf": gvk.String()}
	}
	fields["apiVersion"], fields["kind"] = gvk.GroupVersion().String(), gvk.Kind
	return decode([]byte(compact(fields)))
}

// toWire encodes an object; nil if its Go type does not accept it.
func toWire(object map[string]any) []byte {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(compact(object)), nil, nil)
	if err != nil {
		return nil
	}
	var b bytes.Buffer
	if wire.Encode(obj, &b) != nil {
		return nil
	}
	return b.Bytes()
}

// documentsIn reads consecutive JSON documents, as a watch sends them. It leaves out periodic
// bookmarks.
func documentsIn(data []byte) any {
	d := newDecoder(data)
	var list []any
	for {
		var v any
		switch err := d.Decode(&v); err {
		case nil:
			annotations := dig(dig(dig(v, "object"), "metadata"), "annotations")
			if dig(v, "type") != "BOOKMARK" || dig(annotations, "k8s.io/initial-events-end") != nil {
				list = append(list, v)
			}
		case io.EOF:
			return list
		default:
			return nil
		}
	}
}

var accepts = []string{
	"", "*/*", "application/*", "application/json", "application/yaml", mediaProtobuf, "text/plain", "text/html", "application/xml", "application/cbor", "application/json;q=0.1, application/yaml",
	mediaProtobuf + ", application/json", "application/json;charset=utf-8", "application/json; charset=latin1", "application/json;pretty=1", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
	"application/json;as=Table;g=meta.k8s.io;v=v2", "application/json;as=Table;g=x;v=v1", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/json;as=Nothing;g=meta.k8s.io;v=v1", "application/yaml;as=Table;g=meta.k8s.io;v=v1", mediaProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
	mediaProtobuf + ";as=Table;g=meta.k8s.io;v=v1", mediaProtobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/json;stream=watch", "application/json;export=1", "garbage", ";", "application/json;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2",
	"application/json;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2beta1", "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList,application/json", "application/apply-patch+yaml", "application/vnd.kubernetes.protobuf;stream=watch", "application/cbor-seq, application/json",
}

// negotiate requests the object, its list or a document in some format.
func (c *scenario) negotiate() {
	accept := oneOf(c.r, accepts)
	path := oneOf(c.r, []string{c.path(), c.path(), c.path() + "-not-there", c.entry.collection(c.entry.version, c.namespace) + "?labelSelector=case%3D" + c.name, prefix(c.entry.group, c.entry.version), "/api", "/apis"})
	r := request{method: oneOf(c.r, []string{http.MethodGet, http.MethodGet, http.MethodGet, http.MethodHead}), path: path, accept: accept, exactAccept: true}
	// compareDocuments compares whole documents
	r.brief = path == "/apis" || path == prefix(c.entry.group, c.entry.version)
	c.both("negotiate", r.method+" "+accept, func(int) request { return r })
}

var contentTypes = []string{
	"", "application/json", "application/yaml", mediaProtobuf, "text/plain", "application/xml", "application/cbor", "application/json; charset=utf-8", "garbage/", "application/json;", "application/merge-patch+json", "application/json-patch+json",
	"application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/apply-patch+cbor", "application/x-www-form-urlencoded",
}

// content sends the object with some media type, as it is or damaged.
func (c *scenario) content() {
	media := oneOf(c.r, contentTypes)
	obj := clone(c.entry.object).(map[string]any)
	method, path := http.MethodPost, c.entry.collection(c.entry.version, c.namespace)
	switch c.r.IntN(3) {
	case 0:
		method, path = http.MethodPut, c.path()
	case 1:
		method, path = http.MethodPatch, c.path()
	}
	meta := obj["metadata"].(map[string]any)
	meta["name"] = c.name
	if method == http.MethodPost {
		meta["name"] = c.name + "-x"
	}
	body, how := c.encoded(obj, media)
	if c.r.IntN(3) == 0 && len(body) > 4 {
		how += ", damaged"
		switch at := c.r.IntN(len(body)); c.r.IntN(4) {
		case 0:
			body = body[:at]
		case 1:
			body = append([]byte(oneOf(c.r, []string{" ", "\n", "x", "\x00", "k8s\x00"})), body...)
		case 2:
			body = append(bytes.Clone(body), oneOf(c.r, []string{"}", " ", "x", `{"a":1}`, "\n---\na: b"})...)
		case 3:
			body = []byte(oneOf(c.r, []string{"", "null", "{}", "[]", `"a"`, "1", "{", "k8s\x00", "a: [", "---", "{}{}", `{"kind":"Pod"}`, `{"apiVersion":"v1"}`}))
		}
	}
	path += "?dryRun=All" + c.fieldValidation() + oneOf(c.r, []string{"", "&fieldManager=m", "&fieldManager=m&force=true"})
	c.both("content "+media, how, func(int) request {
		return request{method: method, path: path, contentType: media, body: body}
	})
}

func (c *scenario) encoded(obj map[string]any, media string) ([]byte, string) {
	if media == mediaProtobuf {
		if data := toWire(obj); data != nil {
			return data, "protobuf"
		}
	}
	if media == "application/json-patch+json" && c.r.IntN(2) == 0 {
		return []byte(oneOf(c.r, []string{
			`[{"op":"add","path":"/metadata/labels/x","value":"y"}]`, `[{"op":"copy","from":"/metadata/name","path":"/metadata/labels/x"}]`, `[{"op":"move","from":"/metadata/labels/case","path":"/metadata/labels/moved"}]`,
			`[{"op":"test","path":"/kind","value":"Nothing"}]`, `[{"op":"bad","path":"/kind"}]`, `[{"op":"remove","path":"/nothing"}]`, `[{"op":"replace","path":"/nothing/x","value":1}]`, `[{"op":"add","path":"no/slash","value":1}]`,
			`[{"op":"add"}]`, `[{}]`, `[1]`, `{}`, `[{"op":"add","path":"/metadata/finalizers/-","value":"a.example/f"}]`, `[{"op":"add","path":"/metadata/finalizers/5","value":"a.example/f"}]`, `[{"op":"replace","path":"","value":{}}]`,
		})), "operations"
	}
	if media == "application/strategic-merge-patch+json" && c.r.IntN(2) == 0 {
		return []byte(oneOf(c.r, []string{
			`{"metadata":{"labels":{"$patch":"replace","x":"y"}}}`, `{"metadata":{"$patch":"delete"}}`, `{"metadata":{"labels":{"$patch":"merge","x":"y"}}}`, `{"metadata":{"$retainKeys":["name"],"name":"x"}}`, `{"metadata":{"finalizers":["a.example/f"],"$setElementOrder/finalizers":["a.example/f"]}}`,
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a.example/f"]}}`, `{"metadata":{"labels":{"$patch":"odd"}}}`, `{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"x"}]}}`, `{"metadata":{"ownerReferences":[{"$patch":"replace"}]}}`, `{"spec":{"$patch":"replace"}}`, `{"metadata":{"ownerReferences":[{"name":"x"}]}}`,
		})), "directives"
	}
	return []byte(compact(obj)), "JSON"
}

// badQuery sends requests with parameters that are wrong, or have no meaning here.
func (c *scenario) badQuery() {
	key := oneOf(c.r, []string{"limit", "continue", "timeoutSeconds", "resourceVersion", "resourceVersionMatch", "watch", "allowWatchBookmarks", "sendInitialEvents", "labelSelector", "fieldSelector", "pretty", "dryRun", "fieldManager", "fieldValidation", "force", "gracePeriodSeconds", "orphanDependents", "propagationPolicy", "ignoreStoreReadErrorWithClusterBreakingPotential", "timeout", "includeObject"})
	value := oneOf(c.r, []string{"", "x", "-1", "0", "1", "true", "false", "True", "2", "99999999999999999999", "1.5", "All", "None", "Strict", "Exact", "NotOlderThan", "Background", "Foreground", "Orphan", "Object", "a=b", "a==b,c!=d", "a in (b,c)", "a notin ()", "!a", "=", "a=b=c", ",", "metadata.name=x", "metadata.name!=x", "metadata.name", "Metadata", strings.Repeat("m", 129), "tab\there", "1s", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0"})
	if (key == "watch" || key == "sendInitialEvents") && value != "x" {
		value = "0" // otherwise the watch would not end
	}
	method := oneOf(c.r, []string{http.MethodGet, http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodDelete})
	list := c.entry.collection(c.entry.version, c.namespace)
	path, body, media := c.path(), "", "application/json"
	switch {
	case method == http.MethodPost || method == http.MethodGet && c.r.IntN(2) == 0:
		path = list
	case method == http.MethodDelete && c.r.IntN(2) == 0:
		path = list
	}
	query := url.Values{}
	if method != http.MethodGet {
		query.Set("dryRun", "All")
	}
	if path == list && method != http.MethodPost {
		query.Set("labelSelector", "case="+c.name)
	}
	query.Set(key, value)
	if path == list && query.Get("labelSelector") == "" {
		query.Set("labelSelector", "case="+c.name) // other cases create and delete objects
	}
	if key == "dryRun" && method == http.MethodDelete && value != "All" && path == list {
		return // would delete the objects of other cases
	}
	obj := clone(c.entry.object).(map[string]any)
	meta := obj["metadata"].(map[string]any)
	meta["name"] = c.name
	switch method {
	case http.MethodPost:
		meta["name"] = c.name + "-q"
		if !strings.Contains(query.Encode(), "dryRun=All") {
			return
		}
		body = compact(obj)
	case http.MethodPut:
		body = compact(obj)
	case http.MethodPatch:
		media, body = "application/merge-patch+json", `{"metadata":{"labels":{"q":"1"}}}`
	case http.MethodDelete:
		if !strings.Contains(query.Encode(), "dryRun=All") {
			return
		}
	}
	c.both("query "+key, method+" "+key+"="+value, func(int) request {
		return request{method: method, path: path + "?" + query.Encode(), contentType: media, body: []byte(body)}
	})
}

// wrongMethod uses methods and subresources that do not exist.
func (c *scenario) wrongMethod() {
	list := c.entry.collection(c.entry.version, c.namespace)
	path := oneOf(c.r, []string{c.path(), list, c.path() + "/status", c.path() + "/nothing", c.path() + "/scale", c.path() + "/status/x", list + "/", c.path() + "/", prefix(c.entry.group, c.entry.version), prefix(c.entry.group, c.entry.version) + "/nothing", prefix(c.entry.group, c.entry.version) + "/watch/" + c.entry.resource + "/a/b/c"})
	method := oneOf(c.r, []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodOptions, http.MethodHead, "PROPFIND", http.MethodGet, http.MethodTrace})
	media := oneOf(c.r, []string{"application/json", "application/merge-patch+json"})
	if method == http.MethodGet && strings.TrimSuffix(path, "/") == list && !c.entry.namespaced {
		return // other cases create and delete objects
	}
	c.both("odd", method+" "+media, func(int) request {
		// compareDocuments compares whole documents.
		return request{method: method, path: path + "?dryRun=All", contentType: media, body: []byte(`{}`), brief: path == prefix(c.entry.group, c.entry.version)}
	})
}

// pages lists with a limit and follows each side's own continue tokens.
func (c *scenario) pages() {
	if !c.entry.namespaced {
		return // other cases create objects meanwhile, so whether a page is the last one is random
	}
	list := c.entry.collection(c.entry.version, c.namespace)
	own := c.last
	defer func() { c.last = own }() // keep this case's object, which must be removed
	for i := range 2 {
		obj := c.freshNamed(fmt.Sprintf("%s-%d", c.name, i))
		if c.both("create", "one more", func(int) request { return c.write(http.MethodPost, list, obj, "application/json") }) != http.StatusCreated {
			return
		}
		defer c.removeNamed(fmt.Sprintf("%s-%d", c.name, i))
		c.settled(fmt.Sprintf("%s/%s-%d", list, c.name, i))
	}
	base := url.Values{"labelSelector": {"case=" + c.name}, "limit": {oneOf(c.r, []string{"1", "1", "2", "5"})}}
	var tokens [2]string
	for range 4 {
		c.both("page", base.Encode(), func(side int) request {
			query := url.Values{"labelSelector": base["labelSelector"], "limit": base["limit"]}
			if tokens[side] != "" {
				query.Set("continue", tokens[side])
			}
			return request{method: http.MethodGet, path: list + "?" + query.Encode()}
		})
		for i := range tokens {
			meta, _ := dig(c.answered[i], "metadata").(map[string]any)
			tokens[i], _ = meta["continue"].(string)
		}
		if tokens[0] == "" || tokens[1] == "" {
			break
		}
	}
	if c.r.IntN(2) == 0 {
		body := oneOf(c.r, []string{"", `{"propagationPolicy":"Background"}`, `{"gracePeriodSeconds":0}`, `{"dryRun":["All"]}`, `[]`})
		c.both("deletecollection", body, func(int) request {
			return request{method: http.MethodDelete, path: list + "?labelSelector=case%3D" + c.name, contentType: "application/json", body: []byte(body)}
		})
	}
}
