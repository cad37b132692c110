package apiserver

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/api"
)

// mountDiscovery serves /api and /apis.
func (s *Server) mountDiscovery(mux *http.ServeMux) {
	lists := s.discover()
	for _, list := range lists {
		prefix := "/apis/"
		if list.GroupVersion == "v1" {
			prefix = "/api/"
		}
		mux.HandleFunc("GET "+prefix+list.GroupVersion, func(w http.ResponseWriter, r *http.Request) {
			f, err := negotiate(r, false, false)
			if err != nil {
				respondError(w, jsonFormat, err)
				return
			}
			respondAs(w, http.StatusOK, f, list, metav1.SchemeGroupVersion.WithKind("APIResourceList"))
		})
	}
}

// discover lists the resources per group version.
func (s *Server) discover() []*metav1.APIResourceList {
	var out []*metav1.APIResourceList
	byVersion := map[string]*metav1.APIResourceList{}
	for i := range api.Kinds() {
		k := &api.Kinds()[i]
		for _, version := range k.Served {
			gv := k.Kind.GroupVersion()
			gv.Version = version
			list := byVersion[gv.String()]
			if list == nil {
				list = &metav1.APIResourceList{GroupVersion: gv.String()}
				byVersion[gv.String()] = list
				out = append(out, list)
			}
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.Resource, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind.Kind,
				Verbs: slices.Clone(k.AllVerbs()), ShortNames: k.ShortNames, Categories: k.Categories,
			})
			for _, sub := range k.Subresources {
				res := metav1.APIResource{Name: k.Resource + "/" + sub.Name, Namespaced: k.Namespaced, Kind: sub.Kind.Kind, Verbs: sub.Verbs}
				if sub.Kind.GroupVersion() != gv {
					res.Group, res.Version = sub.Kind.Group, sub.Kind.Version
				}
				list.APIResources = append(list.APIResources, res)
			}
		}
	}
	return out
}
