package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/knarr-project/knarr/internal/volume"
)

// maxEnvFile is the size limit of environment files in bytes (KEP-3721, Size Limit).
const maxEnvFile = 64 << 10

// fileValue reads one variable of an environment file in an emptyDir (KEP-3721). ok is false if an
// optional file or variable is missing. Errors never contain the file's content, which may be
// secret.
func fileValue(ref *corev1.FileKeySelector, volumes map[string]string) (value string, ok bool, err error) {
	optional := ref.Optional != nil && *ref.Optional
	dir, known := volumes[ref.VolumeName]
	if !known {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	raw, err := volume.ReadBeneath(dir, strings.TrimLeft(ref.Path, "/"), maxEnvFile)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("couldn't read env file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	variables, err := parseEnvFile(string(raw))
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	if value, ok = variables[ref.Key]; ok || optional {
		return value, ok, nil
	}
	return "", false, fmt.Errorf("environment variable key %q not found in file %q of volume %q", ref.Key, ref.Path, ref.VolumeName)
}

// parseEnvFile reads lines NAME='value', the subset of POSIX shell assignments that Kubernetes
// documents as its env file syntax. A value is literal and may span lines. Blank lines and lines
// that begin with # are skipped. The last assignment of a name wins.
func parseEnvFile(text string) (map[string]string, error) {
	variables := map[string]string{}
	for line := 1; text != ""; {
		current, rest, _ := strings.Cut(text, "\n")
		current = strings.TrimLeft(current, " \t")
		if current == "" || current[0] == '#' {
			text, line = rest, line+1
			continue
		}
		name, value, rest, err := assignment(strings.TrimLeft(text, " \t"))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		variables[name] = value
		text, line = rest, line+1+strings.Count(value, "\n")
	}
	return variables, nil
}

// assignment splits the first assignment off text. rest begins with the next line.
func assignment(text string) (name, value, rest string, err error) {
	fail := func(reason string) (string, string, string, error) { return "", "", "", errors.New(reason) }
	end := strings.IndexAny(text, "=\n")
	if end < 0 || text[end] == '\n' {
		return fail("want NAME='value'")
	}
	name, text = text[:end], text[end+1:]
	switch {
	case strings.TrimRight(name, " \t") != name:
		return fail("whitespace before '=' is not allowed")
	case strings.ContainsAny(name, " \t") || len(validation.IsRelaxedEnvVarName(name)) > 0:
		return fail("the name of a variable consists of printable ASCII characters without spaces and '='")
	}
	text, quoted := strings.CutPrefix(text, "'")
	if !quoted {
		return fail("the value must be enclosed in single quotes")
	}
	value, text, closed := strings.Cut(text, "'")
	if !closed {
		return fail("the value has no closing single quote")
	}
	if strings.ContainsRune(value, 0) {
		return fail("the value contains a NUL byte")
	}
	after, rest, _ := strings.Cut(text, "\n")
	if strings.Trim(after, " \t") != "" {
		return fail("unexpected content after the closing quote")
	}
	return name, value, rest, nil
}
