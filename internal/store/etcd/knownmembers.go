package etcd

import "fmt"

// KnownMembers returns the members that this one knows, sorted by name, and the newest revision
// that it has. It asks no other member, so it works without a majority, and both may be outdated.
func (e *Engine) KnownMembers() ([]Member, int64, error) {
	done, err := e.read()
	if err != nil {
		return nil, 0, fmt.Errorf("list members: %w", err)
	}
	defer done()
	return e.members(), e.server.KV().Rev(), nil
}
