package main

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// module is one Go module in the binaries.
type module struct {
	Path, Version string
	Sum           string // as in go.sum; "" for Go's standard library
	// In are the names of the binaries that contain it.
	In []string
	// Licence is its SPDX identifier, several joined by AND; NOASSERTION where no text was
	// recognized.
	Licence string
	// Texts are its licence and notice files by name.
	Texts []text
}

type text struct{ Name, Content string }

// standard is the name under which Go's standard library stands in the lists.
const standard = "std"

// modulesOf reads the modules that the Go command recorded in the binaries, the main modules left
// out.
func modulesOf(binaries []string) ([]module, error) {
	found := map[string]*module{}
	add := func(path, version, sum, binary string) {
		key := path + "@" + version
		m := found[key]
		if m == nil {
			m = &module{Path: path, Version: version, Sum: sum}
			found[key] = m
		}
		if !slices.Contains(m.In, binary) {
			m.In = append(m.In, binary)
		}
	}
	for _, path := range binaries {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		name := filepath.Base(path)
		add(standard, strings.TrimPrefix(info.GoVersion, "go"), "", name)
		if main := info.Main; main.Sum != "" { // built from the module cache, such as runc
			add(main.Path, main.Version, main.Sum, name)
		}
		for _, dep := range info.Deps {
			if dep.Replace != nil {
				dep = dep.Replace
			}
			if dep.Sum != "" { // a module of this repository has none
				add(dep.Path, dep.Version, dep.Sum, name)
			}
		}
	}
	modules := make([]module, 0, len(found))
	for _, m := range slices.SortedFunc(maps.Values(found), func(a, b *module) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Version, b.Version))
	}) {
		modules = append(modules, *m)
	}
	return modules, nil
}

// libraries are the C libraries of -library flags.
type libraries []module

func (l *libraries) String() string { return "" }

// Set takes NAME@VERSION=LICENCE=FILE.
func (l *libraries) Set(value string) error {
	parts := strings.Split(value, "=")
	name, version, ok := strings.Cut(parts[0], "@")
	if !ok || len(parts) != 3 {
		return fmt.Errorf("wanted NAME@VERSION=LICENCE=FILE")
	}
	content, err := os.ReadFile(parts[2])
	if err != nil {
		return err
	}
	*l = append(*l, module{Path: name, Version: version, Licence: parts[1], Texts: []text{{filepath.Base(parts[2]), string(content)}},
		In: []string{"containerd-shim-runc-v2", "runc"}})
	return nil
}
