package bounds

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxManagersWork is how many bytes may be made of an object for the managers of its fields: those of an object of 1.5 MB for 170.
const MaxManagersWork = 256 << 20

// fewManagers need no counting: a body is 3 MiB at most.
const fewManagers = MaxManagersWork / (3 << 20)

// Managers tells of more managers of an object's fields than are worth it. The library makes the whole object anew for each of them, and joins what those
// had who are too many one after the other.
func Managers(managers []metav1.ManagedFieldsEntry, obj any) error {
	if len(managers) <= fewManagers {
		return nil
	}
	if size := sizeOf(obj); len(managers)*size > MaxManagersWork {
		return fmt.Errorf("metadata.managedFields has %d entries, too many for an object of %d bytes: at most %d bytes are looked at for all of them", len(managers), size, MaxManagersWork)
	}
	return nil
}

// sizeOf is about how large an object is.
func sizeOf(obj any) int {
	switch obj := obj.(type) {
	case interface{ Size() int }:
		return obj.Size()
	case interface{ UnstructuredContent() map[string]any }:
		return contentSize(obj.UnstructuredContent())
	}
	return 0
}

func contentSize(value any) int {
	size := 1
	switch value := value.(type) {
	case string:
		size += len(value)
	case []any:
		for _, item := range value {
			size += contentSize(item)
		}
	case map[string]any:
		for key, item := range value {
			size += len(key) + contentSize(item)
		}
	}
	return size
}
