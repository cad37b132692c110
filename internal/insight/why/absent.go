package why

import (
	"cmp"
	"fmt"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
)

// causeAbsent is the cause of a missing object, with its kind before: configmap-missing.
const causeAbsent = "-missing"

// absent makes the finding on an object that another one needs and that does not exist.
func absent(s *Snapshot, ref Ref) Finding {
	kind := strings.ToLower(ref.Kind)
	f := Finding{Cause: kind + causeAbsent, Subject: ref, Problem: "it does not exist" + inNamespace(ref.Namespace) + ".", Root: true}
	switch ref.Kind {
	case "ConfigMap":
		f.Remedy = fmt.Sprintf("kubectl create configmap %s -n %s --from-file=FILE, or correct its name.", ref.Name, ref.Namespace)
	case "Secret":
		f.Remedy = fmt.Sprintf("kubectl create secret generic %s -n %s --from-file=FILE, or correct its name.", ref.Name, ref.Namespace)
	case "StorageClass":
		var known []string
		classes, _ := list[*storagev1.StorageClass](s, "")
		for _, c := range classes {
			known = append(known, c.Name)
		}
		f.Evidence = []Fact{{Text: "classes: " + names(known)}}
		f.Remedy = "Create the StorageClass, or name an existing one in a new claim."
	default:
		f.Remedy = "Create the " + cmp.Or(ref.Kind, "object") + ", or correct its name."
	}
	return f
}
