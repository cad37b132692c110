package openapi

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/knarr-project/knarr/internal/api"
)

// parameter is a parameter of the path or of the query.
type parameter struct {
	name, in, kind, description string
}

// operation is one method on one path.
type operation struct {
	method      string
	id          string
	description string
	action      string // x-kubernetes-action
	gvk         schema.GroupVersionKind
	params      []parameter
	body        any // value of a Go type; nil for no body
	bodyMust    bool
	consumes    []string
	produces    []string
	answer      any // value of a Go type; nil for plain text
	codes       []int
}

// route is one path. Its params apply to every operation on it.
type route struct {
	path   string
	tag    string
	params []parameter
	ops    []operation
}

var (
	mediaTypes  = []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}
	watchTypes  = append(slices.Clone(mediaTypes), "application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
	anyType     = []string{"*/*"}
	patchTypes  = []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"}
	listParams  = optionParameters(metav1.ListOptions{})
	pretty      = parameter{"pretty", "query", "string", "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget)."}
	inNamespace = parameter{"namespace", "path", "string", "object name and auth scope, such as for teams and projects"}
)

// optionParameters returns the fields of an options type as query parameters, sorted by name.
func optionParameters(options any) []parameter {
	t := reflect.TypeOf(options)
	docs := docsOf(t)
	var list []parameter
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		ft := f.Type
		for ft.Kind() == reflect.Pointer || ft.Kind() == reflect.Slice {
			ft = ft.Elem()
		}
		if name == "" || name == "-" || ft.Kind() == reflect.Struct {
			continue
		}
		value, _ := scalar(ft.Kind())
		list = append(list, parameter{name, "query", value.Type[0], docs[name]})
	}
	slices.SortFunc(list, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	return list
}

func without(list []parameter, names ...string) []parameter {
	return slices.DeleteFunc(slices.Clone(list), func(p parameter) bool { return slices.Contains(names, p.name) })
}

// groupVersionRoutes returns all paths of a group version.
func groupVersionRoutes(gv schema.GroupVersion, on *api.Switches) []route {
	g := newGroupNames(gv)
	routes := []route{{path: g.root + "/", tag: g.tag, ops: []operation{{
		method: http.MethodGet, id: "get" + g.title + "APIResources", description: "get available resources",
		consumes: mediaTypes, produces: mediaTypes, answer: metav1.APIResourceList{}, codes: []int{200},
	}}}}
	for i := range api.Kinds() {
		k := &api.Kinds()[i]
		if k.Kind.Group == gv.Group && slices.Contains(on.Versions(k), gv.Version) {
			routes = append(routes, g.kindRoutes(k)...)
		}
	}
	for i := range routes {
		routes[i].tag = g.tag
	}
	return liftParameters(routes)
}

// groupNames holds the forms of a group version in paths, operation ids and tags.
type groupNames struct {
	gv    schema.GroupVersion
	root  string // "/apis/apps/v1"
	title string // "AppsV1"
	tag   string // "apps_v1"
	// types replaces the Go type of kinds that have none.
	types map[schema.GroupVersionKind]any
}

// typeOf returns a kind's type in operations: a value of its Go type, or the name of its
// definition.
func (g groupNames) typeOf(gvk schema.GroupVersionKind) any {
	if t, ok := g.types[gvk]; ok {
		return t
	}
	return zero(gvk)
}

func newGroupNames(gv schema.GroupVersion) groupNames {
	if gv.Group == "" {
		return groupNames{gv: gv, root: "/api/" + gv.Version, title: "Core" + upper(gv.Version), tag: "core_" + gv.Version}
	}
	title := groupTitle(gv.Group)
	return groupNames{gv: gv, root: "/apis/" + gv.Group + "/" + gv.Version, title: title + upper(gv.Version), tag: strings.ToLower(title[:1]) + title[1:] + "_" + gv.Version}
}

// groupTitle returns "RbacAuthorization" for rbac.authorization.k8s.io.
func groupTitle(group string) string {
	title := ""
	for _, part := range strings.Split(strings.TrimSuffix(group, ".k8s.io"), ".") {
		title += upper(part)
	}
	return title
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// kindRoutes returns the paths of a kind and its subresources.
func (g groupNames) kindRoutes(k *api.Kind) []route {
	gvk := g.gv.WithKind(k.Kind.Kind)
	object := g.typeOf(gvk)
	scope, base := "", g.root
	var outer []parameter
	if k.Namespaced {
		scope, base = "Namespaced", g.root+"/namespaces/{namespace}"
		outer = []parameter{inNamespace}
	}
	name := parameter{"name", "path", "string", "name of the " + gvk.Kind}
	op := func(method, verb, id, description, action string) operation {
		return operation{method: method, id: verb + id, description: description, action: action, gvk: gvk, consumes: anyType, produces: mediaTypes, answer: object, codes: []int{200}}
	}
	id := g.title + scope + gvk.Kind
	collection := route{path: base + "/" + k.Resource, params: outer}
	one := route{path: base + "/" + k.Resource + "/{name}", params: append(slices.Clone(outer), name)}
	var routes []route
	if k.HasVerb("list") {
		o := op(http.MethodGet, "list", id, "list or watch objects of kind "+gvk.Kind, "list")
		if !k.HasVerb("watch") {
			o.description = "list objects of kind " + gvk.Kind
		}
		o.answer, o.produces, o.params = g.typeOf(g.gv.WithKind(gvk.Kind+"List")), watchTypes, append(slices.Clone(listParams), pretty)
		collection.ops = append(collection.ops, o)
		if k.Namespaced {
			o.id = "list" + g.title + gvk.Kind + "ForAllNamespaces"
			routes = append(routes, route{path: g.root + "/" + k.Resource, ops: []operation{o}})
		}
	}
	if k.HasVerb("create") {
		o := op(http.MethodPost, "create", id, article("create", gvk.Kind), "post")
		o.body, o.bodyMust, o.codes = object, true, []int{200, 201, 202}
		o.params = append(optionParameters(metav1.CreateOptions{}), pretty)
		collection.ops = append(collection.ops, o)
	}
	if k.HasVerb("deletecollection") {
		o := op(http.MethodDelete, "delete", g.title+"Collection"+scope+gvk.Kind, "delete collection of "+gvk.Kind, "deletecollection")
		o.body, o.answer = metav1.DeleteOptions{}, metav1.Status{}
		o.params = append(optionParameters(metav1.DeleteOptions{}), without(listParams, "watch", "allowWatchBookmarks")...)
		o.params = append(o.params, pretty)
		collection.ops = append(collection.ops, o)
	}
	one.ops = append(one.ops, g.objectOperations(k.AllVerbs(), id, gvk, object, "")...)
	if k.HasVerb("delete") {
		o := op(http.MethodDelete, "delete", id, article("delete", gvk.Kind), "delete")
		o.body, o.answer, o.codes = metav1.DeleteOptions{}, metav1.Status{}, []int{200, 202}
		if deleteGivesObject[k.Resource] {
			o.answer = object
		}
		o.params = append(optionParameters(metav1.DeleteOptions{}), pretty)
		one.ops = append(one.ops, o)
	}
	routes = append(routes, collection, one)
	for _, s := range k.Subresources {
		routes = append(routes, g.subresourceRoutes(k, s, one, id)...)
	}
	if k.HasVerb("watch") {
		routes = append(routes, g.watchRoutes(k, gvk, outer, name, id)...)
	}
	return routes
}

// deleteGivesObject are the resources whose delete returns the object, which may still exist during
// its grace period or because of finalizers.
var deleteGivesObject = map[string]bool{
	"pods": true, "services": true, "serviceaccounts": true, "persistentvolumes": true, "persistentvolumeclaims": true,
	"podtemplates": true, "resourcequotas": true, "storageclasses": true, "volumeattachments": true, "csidrivers": true, "csinodes": true,
	"volumeattributesclasses": true, "resourceclaims": true, "resourceclaimtemplates": true, "resourceslices": true, "deviceclasses": true,
}

// objectOperations returns get, put and patch for an object or a subresource.
func (g groupNames) objectOperations(verbs []string, id string, gvk schema.GroupVersionKind, object any, sub string) []operation {
	what, of := "specified "+gvk.Kind, "the "
	if sub != "" {
		of = sub + " of the "
	}
	var ops []operation
	add := func(verb, method, word, action string, change func(*operation)) {
		if !slices.Contains(verbs, verb) {
			return
		}
		o := operation{
			method: method, id: word + id, action: action, gvk: gvk, consumes: anyType, produces: mediaTypes, answer: object, codes: []int{200},
			params: []parameter{pretty},
		}
		change(&o)
		ops = append(ops, o)
	}
	add("get", http.MethodGet, "read", "get", func(o *operation) { o.description = "read " + of + what })
	add("update", http.MethodPut, "replace", "put", func(o *operation) {
		o.description = "replace " + of + what
		o.body, o.bodyMust, o.codes = object, true, []int{200, 201}
		o.params = append(optionParameters(metav1.UpdateOptions{}), pretty)
	})
	add("patch", http.MethodPatch, "patch", "patch", func(o *operation) {
		o.description = "partially update " + of + what
		o.body, o.bodyMust, o.codes, o.consumes = metav1.Patch{}, true, []int{200, 201}, patchTypes
		o.params = append(optionParameters(metav1.PatchOptions{}), pretty)
	})
	return ops
}

func (g groupNames) subresourceRoutes(k *api.Kind, s api.Subresource, one route, id string) []route {
	r := route{path: one.path + "/" + s.Name, params: one.params}
	subID := id + upper(s.Name)
	kind := s.Kind
	if kind.GroupVersion() == k.Kind.GroupVersion() {
		kind = g.gv.WithKind(kind.Kind) // in the version of the path
	}
	switch {
	case s.Name == "log":
		o := operation{
			method: http.MethodGet, id: "read" + subID, description: "read log of the specified " + k.Kind.Kind, action: "get", gvk: g.gv.WithKind(k.Kind.Kind),
			consumes: anyType, produces: append([]string{"text/plain"}, mediaTypes...), codes: []int{200},
			params: append(optionParameters(corev1.PodLogOptions{}), pretty),
		}
		r.ops = []operation{o}
		return []route{r}
	case s.Connect:
		return g.connectRoutes(k, s, kind, r, id)
	case slices.Equal(s.Verbs, []string{"create"}):
		object := zero(kind)
		r.ops = []operation{{
			method: http.MethodPost, id: "create" + subID, description: "create " + s.Name + " of " + withArticle(k.Kind.Kind), action: "post", gvk: kind,
			consumes: anyType, produces: mediaTypes, body: object, bodyMust: true, answer: object, codes: []int{200, 201, 202},
			params: append(optionParameters(metav1.CreateOptions{}), pretty),
		}}
		// The parameter is the name of the posted object.
		r.params = slices.Clone(r.params)
		r.params[len(r.params)-1].description = "name of the " + kind.Kind
		return []route{r}
	}
	r.ops = g.objectOperations(s.Verbs, subID, kind, g.typeOf(kind), s.Name)
	for i := range r.ops {
		r.ops[i].description = strings.Replace(r.ops[i].description, "specified "+kind.Kind, "specified "+k.Kind.Kind, 1)
	}
	if kind.Kind != k.Kind.Kind {
		r.params = slices.Clone(r.params)
		r.params[len(r.params)-1].description = "name of the " + kind.Kind
	}
	return []route{r}
}

func (g groupNames) connectRoutes(k *api.Kind, s api.Subresource, kind schema.GroupVersionKind, r route, id string) []route {
	r.params = slices.Clone(r.params)
	r.params[len(r.params)-1].description = "name of the " + kind.Kind
	withPath := route{path: r.path + "/{path}", params: append(slices.Clone(r.params), parameter{"path", "path", "string", "path to the resource"})}
	for _, m := range connectMethods[s.Name] {
		o := operation{
			method: m, id: "connect" + g.title + upper(strings.ToLower(m)) + strings.TrimPrefix(id, g.title) + upper(s.Name),
			description: "connect " + m + " requests to " + s.Name + " of " + k.Kind.Kind, action: "connect", gvk: kind,
			consumes: anyType, produces: anyType, codes: []int{200}, params: optionParameters(zero(kind)),
		}
		r.ops = append(r.ops, o)
		o.id += "WithPath"
		withPath.ops = append(withPath.ops, o)
	}
	if s.Name != "proxy" {
		return []route{r}
	}
	return []route{r, withPath}
}

var connectMethods = map[string][]string{
	"exec":        {http.MethodGet, http.MethodPost},
	"attach":      {http.MethodGet, http.MethodPost},
	"portforward": {http.MethodGet, http.MethodPost},
	"proxy":       {http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions},
}

// watchRoutes returns the deprecated paths of watches.
func (g groupNames) watchRoutes(k *api.Kind, gvk schema.GroupVersionKind, outer []parameter, name parameter, id string) []route {
	base := g.root + "/watch"
	watch := func(path, id, action, description string, params []parameter) route {
		return route{path: path, params: params, ops: []operation{{
			method: http.MethodGet, id: id, action: action, gvk: gvk, consumes: anyType, produces: watchTypes, answer: metav1.WatchEvent{}, codes: []int{200},
			description: description, params: append(slices.Clone(listParams), pretty),
		}}}
	}
	const all = "watch individual changes to a list of %s. deprecated: use the 'watch' parameter with a list operation instead."
	const single = "watch changes to an object of kind %s. deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter."
	list := strings.Replace(all, "%s", gvk.Kind, 1)
	var routes []route
	if k.Namespaced {
		routes = append(routes, watch(base+"/"+k.Resource, "watch"+g.title+gvk.Kind+"ListForAllNamespaces", "watchlist", list, nil))
		base += "/namespaces/{namespace}"
	}
	return append(routes,
		watch(base+"/"+k.Resource, "watch"+id+"List", "watchlist", list, outer),
		watch(base+"/"+k.Resource+"/{name}", "watch"+id, "watch", strings.Replace(single, "%s", gvk.Kind, 1), append(slices.Clone(outer), name)))
}

// groupRoutes returns the paths of a group's own document.
func groupRoutes(group string) []route {
	if group == "" {
		return []route{{path: "/api/", tag: "core", ops: []operation{{
			method: http.MethodGet, id: "getCoreAPIVersions", description: "get available API versions",
			consumes: mediaTypes, produces: mediaTypes, answer: metav1.APIVersions{}, codes: []int{200},
		}}}}
	}
	title := groupTitle(group)
	return []route{{path: "/apis/" + group + "/", tag: strings.ToLower(title[:1]) + title[1:], ops: []operation{{
		method: http.MethodGet, id: "get" + title + "APIGroup", description: "get information of a group",
		consumes: mediaTypes, produces: mediaTypes, answer: metav1.APIGroup{}, codes: []int{200},
	}}}}
}

func groupsRoutes() []route {
	return []route{{path: "/apis/", tag: "apis", ops: []operation{{
		method: http.MethodGet, id: "getAPIVersions", description: "get available API versions",
		consumes: mediaTypes, produces: mediaTypes, answer: metav1.APIGroupList{}, codes: []int{200},
	}}}}
}

func versionRoutes() []route {
	return []route{{path: "/version/", tag: "version", ops: []operation{{
		method: http.MethodGet, id: "getCodeVersion", description: "get the version information for this server",
		consumes: mediaTypes[:1], produces: mediaTypes[:1], answer: version.Info{}, codes: []int{200},
	}}}}
}

// Paths of the service account issuer's discovery documents, as in the version 3 index.
const (
	issuerPath = ".well-known/openid-configuration"
	keysPath   = "openid/v1/jwks"
)

func issuerRoutes() []route {
	return []route{{path: "/" + issuerPath + "/", tag: "WellKnown", ops: []operation{{
		method: http.MethodGet, id: "getServiceAccountIssuerOpenIDConfiguration", description: "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
		produces: mediaTypes[:1], codes: []int{200},
	}}}}
}

func keysRoutes() []route {
	return []route{{path: "/" + keysPath + "/", tag: "openid", ops: []operation{{
		method: http.MethodGet, id: "getServiceAccountIssuerOpenIDKeyset", description: "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
		produces: []string{"application/jwk-set+json"}, codes: []int{200},
	}}}}
}

// liftParameters moves the parameters that all operations of a path share to the path.
func liftParameters(routes []route) []route {
	for i := range routes {
		r := &routes[i]
		if len(r.ops) == 0 {
			continue
		}
		r.params = slices.Clone(r.params)
		for _, p := range r.ops[0].params {
			inAll := !slices.ContainsFunc(r.ops, func(o operation) bool { return !slices.Contains(o.params, p) })
			if inAll {
				r.params = append(r.params, p)
			}
		}
		for j := range r.ops {
			r.ops[j].params = slices.DeleteFunc(slices.Clone(r.ops[j].params), func(p parameter) bool { return slices.Contains(r.params, p) })
			slices.SortFunc(r.ops[j].params, byName)
		}
		slices.SortFunc(r.params, byName)
	}
	return slices.DeleteFunc(routes, func(r route) bool { return len(r.ops) == 0 })
}

func byName(a, b parameter) int { return strings.Compare(a.name, b.name) }

func article(verb, kind string) string { return verb + " " + withArticle(kind) }

func withArticle(kind string) string {
	if strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss") {
		return kind // the plural of Endpoints is Endpoints
	}
	if strings.ContainsRune("AEIOU", rune(kind[0])) {
		return "an " + kind
	}
	return "a " + kind
}

// zero returns a value of a kind's Go type; nil if it has none.
func zero(gvk schema.GroupVersionKind) any {
	obj, err := api.Scheme.New(gvk)
	if err != nil {
		return nil
	}
	return reflect.ValueOf(obj).Elem().Interface()
}
