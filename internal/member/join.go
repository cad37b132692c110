package member

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/knarr-project/knarr/internal/version"
)

// ServersPath is the path at which a machine with a server's token fetches the cluster's keys and
// settings. RBAC allows it to the group of such tokens.
const ServersPath = "/knarr/v1/servers"

// JoinRequest is sent by a machine that becomes a server.
type JoinRequest struct {
	// Name is the name of the new server.
	Name string `json:"name"`
	// Kubernetes is the version of the API that the new server serves, such as v1.36.3.
	Kubernetes string `json:"kubernetes"`
}

// JoinAnswer holds all that the servers of a cluster have in common.
type JoinAnswer struct {
	// Files are the keys, by their path below the folder of keys.
	Files map[string][]byte `json:"files"`
	// Settings are the shared settings, by flag (config.Shared).
	Settings map[string][]string `json:"settings"`
	// Embedded means that the servers contain the store.
	Embedded bool `json:"embedded"`
	// Servers are URLs of API servers.
	Servers []string `json:"servers,omitempty"`
}

// EncryptionFile is the name of the cluster's encryption configuration in the folder of keys.
const EncryptionFile = "encryption.yaml"

// SharedFiles are the keys that all servers of a cluster have. Each server makes the certificates
// of its own with them.
var SharedFiles = []string{"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub", "seal.key"}

// CrossFiles exist during a rotation of a CA: the new CA's certificate by its predecessor.
var CrossFiles = []string{"ca-cross.crt", "front-proxy-ca-cross.crt", "etcd/ca-cross.crt"}

// PeerFiles are the keys of the embedded store's members.
var PeerFiles = []string{"etcd/ca.crt", "etcd/ca.key"}

// ParseJoinRequest parses a request from an untrusted sender.
func ParseJoinRequest(data []byte) (JoinRequest, error) {
	var r JoinRequest
	if err := parseStrictly(data, &r); err != nil {
		return r, err
	}
	if !serverName.MatchString(r.Name) {
		return r, fmt.Errorf("name: %q is not usable: lower-case letters, digits, '-' and '.', at most 253", short(r.Name))
	}
	if err := compatible(r.Kubernetes); err != nil {
		return r, fmt.Errorf("kubernetes: %w", err)
	}
	return r, nil
}

var minorVersion = regexp.MustCompile(`^v1\.([0-9]{1,3})\.`)

// compatible refuses servers whose minor version is more than one away, as upstream's skew policy.
func compatible(kubernetes string) error {
	own, _ := strconv.Atoi(version.Minor)
	match := minorVersion.FindStringSubmatch(kubernetes)
	if match == nil {
		return fmt.Errorf("%q is not usable: a version such as %s", short(kubernetes), version.Kubernetes)
	}
	if theirs, _ := strconv.Atoi(match[1]); theirs < own-1 || theirs > own+1 {
		return fmt.Errorf("%q is not usable: this server has %s, and servers of a cluster are at most one minor version apart", short(kubernetes), version.Kubernetes)
	}
	return nil
}

// Check refuses an answer whose files are not those of a cluster's keys.
func (a JoinAnswer) Check() error {
	wanted := slices.Clone(SharedFiles)
	if a.Embedded {
		wanted = append(wanted, PeerFiles...)
	}
	for _, name := range wanted {
		if len(a.Files[name]) == 0 {
			return fmt.Errorf("the server has sent no %s", name)
		}
	}
	for name := range a.Files {
		if !slices.Contains(wanted, name) && !slices.Contains(CrossFiles, name) && name != EncryptionFile {
			return fmt.Errorf("the server has sent the unknown file %q; is its knarr newer than this one?", short(name))
		}
	}
	return nil
}
