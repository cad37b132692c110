package openapi

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/version"
)

// groupVersions returns the enabled group versions of the table, in its order.
func groupVersions(on *api.Switches) []schema.GroupVersion {
	var list []schema.GroupVersion
	seen := map[schema.GroupVersion]bool{}
	for i := range api.Kinds() {
		k := &api.Kinds()[i]
		for _, v := range on.Versions(k) {
			gv := schema.GroupVersion{Group: k.Kind.Group, Version: v}
			if !seen[gv] {
				seen[gv] = true
				list = append(list, gv)
			}
		}
	}
	return list
}

// paths3 returns the paths of all documents below /openapi/v3/: "api/v1", "apis/apps/v1", ...
func paths3(on *api.Switches) []string {
	list := []string{"api", "apis", "version", issuerPath, keysPath}
	for _, gv := range groupVersions(on) {
		if gv.Group == "" {
			list = append(list, "api/"+gv.Version)
			continue
		}
		list = append(list, "apis/"+gv.Group+"/"+gv.Version)
		if group := "apis/" + gv.Group; !contains(list, group) {
			list = append(list, group)
		}
	}
	return list
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// build3 makes the document at one of paths3.
func build3(path string, on *api.Switches) (*spec3.OpenAPI, error) {
	parts := strings.Split(path, "/")
	var routes []route
	switch {
	case path == "version":
		routes = versionRoutes()
	case path == issuerPath:
		routes = issuerRoutes()
	case path == keysPath:
		routes = keysRoutes()
	case path == "apis":
		routes = groupsRoutes()
	case path == "api":
		routes = groupRoutes("")
	case parts[0] == "api":
		return groupVersionDocument(schema.GroupVersion{Version: parts[1]}, on)
	case len(parts) == 2:
		routes = groupRoutes(parts[1])
	default:
		return groupVersionDocument(schema.GroupVersion{Group: parts[1], Version: parts[2]}, on)
	}
	s, err := newSchemas(v3)
	if err != nil {
		return nil, err
	}
	return document3(s, routes, version.Kubernetes), nil
}

func groupVersionDocument(gv schema.GroupVersion, on *api.Switches) (*spec3.OpenAPI, error) {
	s, err := newSchemas(v3, gv)
	if err != nil {
		return nil, err
	}
	return document3(s, groupVersionRoutes(gv, on), version.Kubernetes), nil
}

// build2 makes the only document of OpenAPI v2.
func build2(on *api.Switches) (*spec.Swagger, error) {
	s, err := newSchemas(v2)
	if err != nil {
		return nil, err
	}
	routes := slices.Concat(groupsRoutes(), versionRoutes(), issuerRoutes(), keysRoutes())
	groups := map[string]bool{}
	for _, gv := range groupVersions(on) {
		if !groups[gv.Group] {
			groups[gv.Group] = true
			routes = append(routes, groupRoutes(gv.Group)...)
		}
		routes = append(routes, groupVersionRoutes(gv, on)...)
	}
	return document2(s, routes, version.Kubernetes), nil
}
