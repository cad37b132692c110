package openapi

import (
	"io/fs"
	"maps"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Providers combines several providers. If two have the same document, the later one wins.
type Providers []Provider

// Revision implements Provider.
func (all Providers) Revision() (sum uint64) {
	for _, p := range all {
		sum += p.Revision() // each of them only grows
	}
	return sum
}

// Hashes implements Provider.
func (all Providers) Hashes() map[string]Hash {
	hashes := map[string]Hash{}
	for _, p := range all {
		maps.Copy(hashes, p.Hashes())
	}
	return hashes
}

// Document implements Provider.
func (all Providers) Document(path string) (*spec3.OpenAPI, error) {
	for i := len(all) - 1; i >= 0; i-- {
		if _, ok := all[i].Hashes()[path]; ok {
			return all[i].Document(path)
		}
	}
	return nil, fs.ErrNotExist
}

// Extend implements Provider.
func (all Providers) Extend(doc *spec.Swagger) error {
	for _, p := range all {
		if err := p.Extend(doc); err != nil {
			return err
		}
	}
	return nil
}
