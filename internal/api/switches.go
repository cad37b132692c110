package api

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Switches selects the resources of the table that clients can use. Disabled resources still exist:
// they are stored, and components of this process use them. nil enables the kinds without a feature
// gate.
type Switches struct {
	text string
	off  map[schema.GroupVersionResource]bool
}

// Serves reports whether clients can use the resource.
func (s *Switches) Serves(gvr schema.GroupVersionResource) bool {
	if s == nil {
		kind, ok := ByResource(gvr.GroupResource())
		return !ok || kind.Gate == ""
	}
	return !s.off[gvr]
}

// String returns the text that the switches were parsed from.
func (s *Switches) String() string {
	if s == nil {
		return ""
	}
	return s.text
}

// Versions returns the kind's versions that clients can use.
func (s *Switches) Versions(k *Kind) []string {
	return slices.DeleteFunc(slices.Clone(k.Served), func(version string) bool {
		return !s.Serves(k.GroupResource().WithVersion(version))
	})
}

// Keys that select many versions.
var manyVersions = map[string]*regexp.Regexp{
	"api/all": regexp.MustCompile(`^v`), "api/ga": regexp.MustCompile(`^v[0-9]+$`),
	"api/beta": regexp.MustCompile(`^v[0-9]+beta[0-9]+$`), "api/alpha": regexp.MustCompile(`^v[0-9]+alpha[0-9]+$`),
}

// absentGroups are Kubernetes groups that are off by default and that this server does not have.
var absentGroups = []string{"internal.apiserver.k8s.io", "storagemigration.k8s.io"}

var preRelease = regexp.MustCompile(`^v[0-9]+(alpha|beta)[0-9]+$`)

// ParseSwitches parses KEY=true and KEY=false in the form of kube-apiserver's --runtime-config. KEY
// alone means true. A key is api/all, api/ga, api/beta, api/alpha, GROUP/VERSION (v1 for the core
// group) or GROUP/VERSION/RESOURCE. A more specific key wins, in any order. gates are the feature
// gates that are on besides the defaults.
func ParseSwitches(list []string, gates ...string) (*Switches, error) {
	if len(list) == 0 {
		return nil, nil
	}
	s := &Switches{text: strings.Join(list, ","), off: map[schema.GroupVersionResource]bool{}}
	wanted := map[string]bool{}
	for _, item := range list {
		key, text, given := strings.Cut(item, "=")
		key = strings.Trim(strings.TrimSpace(key), "/")
		on, err := strconv.ParseBool(strings.TrimSpace(text))
		if given && err != nil {
			return nil, fmt.Errorf("invalid value of %s: %q is neither true nor false", key, text)
		}
		if key == "api/v1" {
			key = "v1"
		}
		wanted[key] = on || !given
		if err := checkSwitch(key, wanted[key]); err != nil {
			return nil, err
		}
	}
	for i := range kinds {
		k := &kinds[i]
		for _, version := range k.Served {
			gvr := k.GroupResource().WithVersion(version)
			on := serves(wanted, gvr)
			if k.Gate != "" {
				key := namedBy(wanted, gvr)
				if on = wanted[key]; on && !slices.Contains(gates, k.Gate) {
					return nil, fmt.Errorf("%s=true: %s needs the feature gate %s=true", key, k.Resource, k.Gate)
				}
			}
			if !on {
				s.off[gvr] = true
			}
		}
	}
	if registration := apiregistrationv1.SchemeGroupVersion.WithResource("apiservices"); s.off[registration] {
		return nil, fmt.Errorf("API group/version %s must be enabled", registration.GroupVersion())
	}
	return s, nil
}

// serves returns the value of the most specific key for a resource; true if there is none.
func serves(wanted map[string]bool, gvr schema.GroupVersionResource) bool {
	version := gvr.GroupVersion().String()
	for _, key := range []string{version + "/" + gvr.Resource, version, "api/ga", "api/beta", "api/alpha", "api/all"} {
		if many := manyVersions[key]; many != nil && !many.MatchString(gvr.Version) {
			continue
		}
		if on, ok := wanted[key]; ok {
			return on
		}
	}
	return true
}

// namedBy returns the key that names the resource or its version; "" if none does.
func namedBy(wanted map[string]bool, gvr schema.GroupVersionResource) string {
	version := gvr.GroupVersion().String()
	for _, key := range []string{version + "/" + gvr.Resource, version} {
		if _, ok := wanted[key]; ok {
			return key
		}
	}
	return ""
}

// checkSwitch refuses unknown keys, and keys that enable APIs this server does not have.
func checkSwitch(key string, on bool) error {
	if _, many := manyVersions[key]; many {
		if on && key != "api/ga" {
			return fmt.Errorf("%s=true: this server does not have the APIs that are off by default; only false is allowed", key)
		}
		return nil
	}
	parts := strings.Split(key, "/")
	if key == "v1" || len(parts) == 2 && parts[0] == "v1" {
		parts = append([]string{""}, parts...)
	}
	if len(parts) < 2 || len(parts) > 3 {
		return fmt.Errorf("runtime-config invalid key %s", key)
	}
	gv := schema.GroupVersion{Group: parts[0], Version: parts[1]}
	group, version, resource := slices.Contains(absentGroups, gv.Group), false, len(parts) == 2
	for i := range kinds {
		k := &kinds[i]
		if k.Kind.Group != gv.Group {
			continue
		}
		group = true
		if slices.Contains(k.Served, gv.Version) {
			version = true
			resource = resource || k.Resource == parts[2]
		}
	}
	switch {
	case !group:
		return fmt.Errorf("unknown api groups %s", key)
	case !version && (on || !preRelease.MatchString(gv.Version)):
		return fmt.Errorf("group version %s that has not been registered: it is not in this server", gv)
	case version && !resource:
		return fmt.Errorf("%s: there is no resource %s in %s", key, parts[2], gv)
	}
	return nil
}
