package aggregation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of an extension server's answers: maxDocument bytes of OpenAPI, maxDiscovery bytes of
// discovery with maxResources resources per group version. The number of resources is limited
// because each is kept, and takes sixty times the memory of an empty one in the document.
const (
	maxDocument  = 16 << 20
	maxDiscovery = 4 << 20
	maxResources = 10_000
)

// readResources reads the discovery document of a group version.
func readResources(from io.Reader) ([]metav1.APIResource, error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		GroupVersion    string       `json:"groupVersion"`
		Resources       resourceList `json:"resources"`
	}
	if err := json.NewDecoder(io.LimitReader(from, maxDiscovery)).Decode(&list); err != nil {
		return nil, err
	}
	return list.Resources, nil
}

// resourceList is decoded one by one, so that a list that is too long takes no more memory than a
// permitted one.
type resourceList []metav1.APIResource

// UnmarshalJSON replaces the list by a decoded one.
func (l *resourceList) UnmarshalJSON(data []byte) error {
	*l = nil
	d := json.NewDecoder(bytes.NewReader(data))
	switch start, err := d.Token(); {
	case err != nil:
		return err
	case start == nil: // null
		return nil
	case start != json.Delim('['):
		return fmt.Errorf("resources: got %v, want a list", start)
	}
	for d.More() {
		if len(*l) == maxResources {
			return fmt.Errorf("resources: more than %d", maxResources)
		}
		var one metav1.APIResource
		if err := d.Decode(&one); err != nil {
			return err
		}
		*l = append(*l, one)
	}
	return nil
}
