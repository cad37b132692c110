// Package abac authorizes by a file of policies, one a line, each of which allows a user or a group something (reference, "Using ABAC Authorization"). It is the oldest of
// Kubernetes' authorizers, for clusters that come from there; the file is read once, at the start.
//
// In: the lines, and requests' attributes. Out: Allow, with no reason, or no opinion.
package abac

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/knarr-project/knarr/internal/auth"
)

// The only form of a line; an older one, without a version, was replaced in Kubernetes 1.2.
const (
	apiVersion = "abac.authorization.kubernetes.io/v1beta1"
	kind       = "Policy"
)

// anything stands for every value.
const anything = "*"

// Policies are the lines of a file.
type Policies []policy

type policy struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       spec   `json:"spec"`
}

// spec is what a line allows; what it does not say is empty, and matches only what is.
type spec struct {
	User, Group string
	Readonly    bool
	APIGroup    string
	Resource    string
	Namespace   string
	// NonResourcePath may end with '*', for all paths that begin so.
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

// Parse reads policies, one JSON object a line. Blank lines and those that begin with '#' are nothing.
func Parse(data []byte) (Policies, error) {
	var policies Policies
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var p policy
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		err := decoder.Decode(&p)
		if err == nil && decoder.More() {
			err = errors.New("more than one object")
		}
		if err == nil && (p.APIVersion != apiVersion || p.Kind != kind) {
			err = fmt.Errorf("a %q of %q; want a %s of %s", p.Kind, p.APIVersion, kind, apiVersion)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		policies = append(policies, p)
	}
	return policies, nil
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

// isFor: a line that names a user and a group is for that user in that group. Anybody is everybody who is known: a request without credentials is not.
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
