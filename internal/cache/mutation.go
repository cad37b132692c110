package cache

import (
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
)

// DetectMutations turns on a test mode, as does the environment variable KNARR_DETECT_MUTATION. The
// cache copies each decoded object that it hands out, and compares both when the cache is closed
// and in CheckMutations. A difference panics, since a reader has changed a shared object. It costs
// the memory of every object ever decoded. Set it before creating a cache.
var DetectMutations = os.Getenv("KNARR_DETECT_MUTATION") != ""

var handedOut struct {
	mu      sync.Mutex
	objects []original
}

type original struct {
	key          string
	object, copy runtime.Object
}

func watchForMutation(e *Entry, obj runtime.Object) {
	if !DetectMutations {
		return
	}
	handedOut.mu.Lock()
	defer handedOut.mu.Unlock()
	handedOut.objects = append(handedOut.objects, original{key: fmt.Sprintf("%s at revision %d", e.Key, e.Revision), object: obj, copy: obj.DeepCopyObject()})
}

func checkMutations() {
	if DetectMutations {
		if found := CheckMutations(); found != "" {
			panic(found)
		}
	}
}

// CheckMutations describes the shared objects that readers have changed since the last call; "" if
// there are none.
func CheckMutations() string {
	handedOut.mu.Lock()
	defer handedOut.mu.Unlock()
	found := ""
	kept := handedOut.objects[:0]
	for _, o := range handedOut.objects {
		if equality.Semantic.DeepEqual(o.object, o.copy) {
			kept = append(kept, o)
			continue
		}
		found += fmt.Sprintf("cache: %s is shared and was changed by a reader, which should have made a DeepCopy:\n%s\n", o.key, diff.Diff(o.copy, o.object))
	}
	handedOut.objects = kept
	return found
}
