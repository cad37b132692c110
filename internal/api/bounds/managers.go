package bounds

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxManagersWork limits the bytes built for all field managers of an object. It allows 170
// managers for an object of 1.5 MB.
const MaxManagersWork = 256 << 20

// fewManagers need no check, because a body has at most 3 MiB.
const fewManagers = MaxManagersWork / (3 << 20)

// Managers returns an error for too many field managers. The library rebuilds the whole object for
// each of them, and merges surplus ones one by one.
func Managers(managers []metav1.ManagedFieldsEntry, obj any) error {
	if len(managers) <= fewManagers {
		return nil
	}
	if size := sizeOf(obj); len(managers)*size > MaxManagersWork {
		return fmt.Errorf("metadata.managedFields has %d entries, too many for an object of %d bytes: entries times bytes may be at most %d", len(managers), size, MaxManagersWork)
	}
	return nil
}

// sizeOf estimates an object's size in bytes.
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
