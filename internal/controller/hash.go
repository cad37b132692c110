package controller

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	"k8s.io/apimachinery/pkg/util/rand"
)

// Hash returns a name for a template by its content: the value of pod-template-hash and
// controller-revision-hash. If two templates collide, the caller raises collisionCount. The
// alphabet is that of generated names, which avoids rude words.
func Hash(template any, collisionCount *int32) string {
	raw, err := json.Marshal(template)
	if err != nil {
		panic(fmt.Sprintf("controller: cannot encode a %T: %v", template, err))
	}
	h := fnv.New32a()
	h.Write(raw)
	if collisionCount != nil {
		h.Write([]byte(strconv.Itoa(int(*collisionCount))))
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}
