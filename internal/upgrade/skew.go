package upgrade

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	own "github.com/knarr-project/knarr/internal/version"
)

// Kubelets may be up to three minor versions older than the API servers, and never newer
// (https://kubernetes.io/releases/version-skew-policy).
const maxNodeSkew = 3

var knarrNumber = regexp.MustCompile(`\+knarr([0-9]{1,9})$`)

// release returns the version of Kubernetes, and the number of knarr's release of it. A build
// without a release has the highest number, because its order is unknown.
func release(b own.Build) (*version.Version, int, error) {
	v, err := version.ParseSemantic(b.Kubernetes)
	if err != nil || len(b.Kubernetes) > 64 {
		return nil, 0, fmt.Errorf("build.kubernetes: %q is not usable: a version such as %s", short(b.Kubernetes), own.Kubernetes)
	}
	number := int(^uint(0) >> 1)
	if m := knarrNumber.FindStringSubmatch(b.Knarr); m != nil {
		number, _ = strconv.Atoi(m[1])
	}
	return v, number, nil
}

// CheckServer refuses a program that may not follow a server's: an older release, or one that skips
// a minor version.
func CheckServer(from, to own.Build) error {
	a, an, err := release(from)
	if err != nil {
		return err
	}
	b, bn, err := release(to)
	if err != nil {
		return err
	}
	switch {
	case b.LessThan(a) || a.EqualTo(b) && bn < an:
		return fmt.Errorf("%s is older than %s, which it would replace: `knarr rollback` goes back", to.Knarr, from.Knarr)
	case b.Major() != a.Major() || b.Minor() > a.Minor()+1:
		return fmt.Errorf("%s skips a minor version after %s: servers are upgraded by one minor version at a time", to.Knarr, from.Knarr)
	}
	return nil
}

// CheckKubelet refuses a kubelet's version beside an API server's of the given version.
func CheckKubelet(kubelet, server string) error {
	k, err := version.ParseSemantic(kubelet)
	if err != nil {
		return fmt.Errorf("the node's version %q is not usable: a version such as %s", short(kubelet), own.Kubernetes)
	}
	s, err := version.ParseSemantic(server)
	if err != nil {
		return fmt.Errorf("the server's version %q is not usable: a version such as %s", short(server), own.Kubernetes)
	}
	switch {
	case k.Major() != s.Major() || k.Minor() > s.Minor():
		return fmt.Errorf("node agent %s is newer than the API server %s: upgrade all servers first", kubelet, server)
	case k.Minor()+maxNodeSkew < s.Minor():
		return fmt.Errorf("node agent %s is more than %d minor versions older than the API server %s: upgrade the nodes first", kubelet, maxNodeSkew, server)
	}
	return nil
}

// CheckServers refuses servers that are more than one minor version apart.
func CheckServers(a, b string) error {
	va, err := version.ParseSemantic(a)
	if err != nil {
		return fmt.Errorf("version %q is not usable: a version such as %s", short(a), own.Kubernetes)
	}
	vb, err := version.ParseSemantic(b)
	if err != nil {
		return fmt.Errorf("version %q is not usable: a version such as %s", short(b), own.Kubernetes)
	}
	if va.Major() != vb.Major() || va.Minor() > vb.Minor()+1 || vb.Minor() > va.Minor()+1 {
		return fmt.Errorf("API servers of %s and %s: servers of a cluster are at most one minor version apart", a, b)
	}
	return nil
}

// Gone reports whether an API that a release removes is gone with a version.
func (d DeprecatedAPI) Gone(kubernetes string) bool {
	removed, err := version.ParseGeneric(d.Removed)
	if err != nil {
		return false
	}
	v, err := version.ParseGeneric(strings.TrimPrefix(kubernetes, "v"))
	return err == nil && (v.Major() > removed.Major() || v.Major() == removed.Major() && v.Minor() >= removed.Minor())
}
