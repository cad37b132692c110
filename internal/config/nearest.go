package config

import (
	"cmp"
	"slices"
	"strings"
)

// maxSuggestions is the maximum number of suggestions.
const maxSuggestions = 3

// Nearest returns the known names that a mistyped one most likely means, the likeliest first, or
// nil. It ignores capitals, dashes and underscores, so dataDir matches data-dir.
func Nearest(name string, known []string) []string {
	type candidate struct {
		name  string
		steps int
	}
	given := normalize(name)
	if given == "" {
		return nil
	}
	most := min(3, 1+len(given)/5)
	var near []candidate
	for _, k := range known {
		if steps := distance(given, normalize(k)); steps <= most && steps < len(given) {
			near = append(near, candidate{k, steps})
		}
	}
	if len(near) == 0 {
		return containing(name, known)
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return cmp.Compare(a.steps, b.steps) })
	var names []string
	for _, c := range near {
		if c.steps == near[0].steps && len(names) < maxSuggestions && !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	return names
}

// containing returns known names that contain all words of the given one, if there are few.
func containing(name string, known []string) (found []string) {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' })
	for _, k := range known {
		have := strings.Split(k, "-")
		if !slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(have, word) }) {
			found = append(found, k)
		}
	}
	if len(found) > maxSuggestions {
		return nil
	}
	return found
}

func normalize(name string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
}

// distance is the number of insertions, deletions, replacements and swaps of neighbours that turn a
// into b.
func distance(a, b string) int {
	older, old := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range old {
		old[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := old[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(old[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, old = old, row
	}
	return old[len(b)]
}
