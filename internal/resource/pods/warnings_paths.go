package pods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// filePath is a path inside a volume and the object projected there.
type filePath struct {
	path string
	from string // the source, when a volume has several
}

// warnPaths warns of files that a volume shows at the same path or at nested paths.
func warnPaths(v *corev1.Volume) []string {
	var what string
	var paths []filePath
	switch {
	case v.ConfigMap != nil:
		what, paths = fmt.Sprintf("ConfigMap %q", v.ConfigMap.Name), itemPaths(v.ConfigMap.Items, "")
	case v.Secret != nil:
		what, paths = fmt.Sprintf("Secret %q", v.Secret.SecretName), itemPaths(v.Secret.Items, "")
	case v.DownwardAPI != nil:
		what, paths = "DownwardAPI", downwardPaths(v.DownwardAPI.Items, "")
	case v.Projected != nil:
		what, paths = "Projected", projectedPaths(v.Projected.Sources)
	default:
		return nil
	}
	var out []string
	runes := 0
	for _, pair := range overlapping(paths) {
		text := fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", v.Name, what, paths[pair.later], paths[pair.earlier])
		out = append(out, text)
		if runes += min(utf8.RuneCountInString(text), warnedRunesOne); runes > warnedRunes {
			break
		}
	}
	return out
}

func (p filePath) String() string {
	if p.from == "" {
		return fmt.Sprintf("%q", p.path)
	}
	return fmt.Sprintf("%q (%s)", p.path, p.from)
}

func itemPaths(items []corev1.KeyToPath, from string) []filePath {
	var out []filePath
	for _, item := range items {
		out = append(out, filePath{strings.TrimRight(item.Path, "/"), from})
	}
	return out
}

func downwardPaths(items []corev1.DownwardAPIVolumeFile, from string) []filePath {
	var out []filePath
	for _, item := range items {
		out = append(out, filePath{strings.TrimRight(item.Path, "/"), from})
	}
	return out
}

func projectedPaths(sources []corev1.VolumeProjection) []filePath {
	var out []filePath
	one := func(path, from string) {
		if path = strings.TrimRight(path, "/"); path != "" {
			out = append(out, filePath{path, from})
		}
	}
	for _, s := range sources {
		switch {
		case s.Secret != nil:
			out = append(out, itemPaths(s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))...)
		case s.ConfigMap != nil:
			out = append(out, itemPaths(s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))...)
		case s.DownwardAPI != nil:
			out = append(out, downwardPaths(s.DownwardAPI.Items, "DownwardAPI")...)
		case s.ServiceAccountToken != nil:
			one(s.ServiceAccountToken.Path, "ServiceAccountToken")
		}
	}
	return out
}

// pathPair holds two indexes of a list; the warning names the later one first.
type pathPair struct{ later, earlier int }

// overlapping finds paths that are equal or nested. Comparing every pair of the paths that fit into
// a request takes hours. Sorted by path segments, nested paths follow their parent directly. If
// there are very many pairs, it finds only some, but more than a response can carry.
func overlapping(paths []filePath) []pathPair {
	type keyed struct {
		key   string // the path, encoded so that nothing sorts between a folder and its content
		index int
	}
	list := make([]keyed, len(paths))
	for i, p := range paths {
		list[i] = keyed{strings.ReplaceAll(p.path, "/", "\x00"), i}
	}
	slices.SortFunc(list, func(a, b keyed) int {
		return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.index, b.index))
	})
	var pairs []pathPair
	var around []keyed // the parents of the current path, and paths equal to it
	for _, here := range list {
		for len(around) > 0 {
			top := around[len(around)-1].key
			if here.key == top || strings.HasPrefix(here.key, top+"\x00") {
				break
			}
			around = around[:len(around)-1]
		}
		for _, other := range around {
			pairs = append(pairs, pathPair{max(here.index, other.index), min(here.index, other.index)})
			if len(pairs) == warnedRunes {
				return pairs
			}
		}
		around = append(around, here)
	}
	slices.SortFunc(pairs, func(a, b pathPair) int {
		return cmp.Or(cmp.Compare(a.later, b.later), cmp.Compare(a.earlier, b.earlier))
	})
	return pairs
}
