package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ownObjects lists objects that each API server writes for itself when it starts.
var ownObjects = []string{
	"coordination.k8s.io/v1/leases/kube-system/apiserver-",         // its own identity
	"v1/configmaps/kube-system/extension-apiserver-authentication", // the CA of its own front proxy
	// Removed at its end, added at its start.
	"v1/endpoints/default/kubernetes",
	"v1/endpointslices/default/kubernetes",
	"v1/clusterroles//knarr:", // knarr's roles of nodes, beside upstream's
	"v1/clusterrolebindings//knarr:",
}

// differences compares the objects of two servers, including revisions.
func differences(before, after map[string]*unstructured.Unstructured) error {
	var errs []error
	for key, was := range before {
		is, ok := after[key]
		switch {
		case containsAny(key, ownObjects):
		case !ok:
			errs = append(errs, fmt.Errorf("%s is not there", key))
		default:
			errs = append(errs, describeDifferences(key, was, is)...)
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok && !containsAny(key, ownObjects) {
			errs = append(errs, fmt.Errorf("%s was not there", key))
		}
	}
	return errors.Join(errs...)
}

func containsAny(s string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(s, part) {
			return true
		}
	}
	return false
}

// describeDifferences describes the differences between two states of an object. Fields that every
// write changes are only reported if nothing else differs.
func describeDifferences(key string, was, is *unstructured.Unstructured) (errs []error) {
	var marks []error
	for path, values := range differingValues("", was.Object, is.Object) {
		err := fmt.Errorf("%s: %s was %.300s, is %.300s", key, path, values[0], values[1])
		switch path {
		case ".metadata.resourceVersion", ".metadata.generation", ".metadata.managedFields":
			marks = append(marks, err)
		default:
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return marks
}

// differingValues returns the values that differ, by path; lists count as values.
func differingValues(path string, a, b any) map[string][2]string {
	left, ok := a.(map[string]any)
	right, okToo := b.(map[string]any)
	if !ok || !okToo {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return map[string][2]string{path: {asText(a), asText(b)}}
	}
	all := map[string][2]string{}
	for key := range left {
		maps.Copy(all, differingValues(path+"."+key, left[key], right[key]))
	}
	for key := range right {
		if _, ok := left[key]; !ok {
			all[path+"."+key] = [2]string{"nothing", asText(right[key])}
		}
	}
	return all
}

func asText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
