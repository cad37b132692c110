package cache

import (
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
)

// DetectMutations turns on a test mode (as does the environment variable KNARR_DETECT_MUTATION): each decoded object that
// the cache hands out is copied, and compared with its copy when the cache is closed and when CheckMutations is called. A
// difference panics, since somebody changed an object that everybody shares. Costs the memory of every object ever decoded. Set it before a cache is made.
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

// CheckMutations says which shared objects were changed by somebody who read them; "" when none was. Each is told once.
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
		found += fmt.Sprintf("cache: %s is shared and was changed by a reader, who should have made a DeepCopy:\n%s\n", o.key, diff.Diff(o.copy, o.object))
	}
	handedOut.objects = kept
	return found
}
