// Package abac authorizes by a file of policies (reference, "Using ABAC Authorization"). Each line
// allows a user or a group something. It is the oldest of Kubernetes' authorizers and serves
// clusters that still use it. The file is read once, at the start.
//
// In: the lines, and attributes of requests. Out: Allow without a reason, or no opinion.
package abac

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/knarr-project/knarr/internal/auth"
)

// Version and kind of a line. Lines without a version, replaced in Kubernetes 1.2, are still read:
// see unversioned.
const (
	apiVersion = "abac.authorization.kubernetes.io/v1beta1"
	kind       = "Policy"
)

// anything matches every value.
const anything = "*"

// Policies holds the lines of a file.
type Policies []policy

type policy struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       spec   `json:"spec"`
}

// spec is what a line allows. An empty field matches only an empty attribute.
type spec struct {
	User, Group string
	Readonly    bool
	APIGroup    string
	Resource    string
	Namespace   string
	// NonResourcePath may end with '*', which matches all paths with that prefix.
	NonResourcePath string
}

// Load reads a file of policies.
func Load(path string) (Policies, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	policies, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return policies, nil
}

// Parse reads policies, one JSON object per line. It skips blank lines and lines that begin with
// '#'.
func Parse(data []byte) (Policies, error) {
	var policies Policies
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		p, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		policies = append(policies, p)
	}
	return policies, nil
}

func parseLine(line []byte) (p policy, err error) {
	var version struct{ APIVersion, Kind any }
	if json.Unmarshal(line, &version) == nil && version.APIVersion == nil && version.Kind == nil {
		var old unversioned
		if err = decode(line, &old); err != nil {
			return p, err
		}
		return policy{APIVersion: apiVersion, Kind: kind, Spec: old.spec()}, nil
	}
	if err = decode(line, &p); err == nil && (p.APIVersion != apiVersion || p.Kind != kind) {
		err = fmt.Errorf("kind %q in %q, want kind %s in %s", p.Kind, p.APIVersion, kind, apiVersion)
	}
	return p, err
}

func decode(line []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if decoder.More() {
		return errors.New("more than one JSON object")
	}
	return nil
}

// unversioned is the oldest form of a line. A missing field matches everything: every authenticated
// user, namespace and resource, and every path if it names neither. It covers all API groups.
type unversioned struct {
	User, Group         string
	Readonly            bool
	Resource, Namespace string
}

func (u *unversioned) spec() spec {
	s := spec{User: u.User, Group: u.Group, Readonly: u.Readonly, APIGroup: anything, Resource: cmp.Or(u.Resource, anything), Namespace: cmp.Or(u.Namespace, anything)}
	if u.User == "" && u.Group == "" {
		s.Group = auth.GroupAuthenticated
	}
	if u.Resource == "" && u.Namespace == "" {
		s.NonResourcePath = anything
	}
	return s
}

// Authorize implements auth.Authorizer.
func (all Policies) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	for i := range all {
		if all[i].Spec.allows(&a) {
			return auth.Allow, "", nil
		}
	}
	return auth.NoOpinion, "No policy matched.", nil
}

func (s *spec) allows(a *auth.Attributes) bool {
	if !s.isFor(&a.User) || s.Readonly && !reads(a) {
		return false
	}
	if a.IsResource() {
		return matches(s.Namespace, a.Namespace) && matches(s.Resource, a.Resource) && matches(s.APIGroup, a.Group)
	}
	prefix, whole := strings.CutSuffix(s.NonResourcePath, anything)
	return s.NonResourcePath == a.Path || whole && strings.HasPrefix(a.Path, prefix)
}

// isFor reports whether the line applies to the user. A line with a user and a group needs both.
// '*' means every authenticated user, so requests without credentials are excluded.
func (s *spec) isFor(u *auth.User) bool {
	known := slices.Contains(u.Groups, auth.GroupAuthenticated)
	switch s.User {
	case "":
		if s.Group == "" {
			return false
		}
	case anything:
		if !known {
			return false
		}
	default:
		if s.User != u.Name {
			return false
		}
	}
	if s.Group == anything {
		return known
	}
	return s.Group == "" || slices.Contains(u.Groups, s.Group)
}

func matches(pattern, value string) bool { return pattern == anything || pattern == value }

func reads(a *auth.Attributes) bool {
	return a.Verb == "get" || a.IsResource() && (a.Verb == "list" || a.Verb == "watch")
}
