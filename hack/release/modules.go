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
	// In lists the binaries that contain the module.
	In []string
	// Licence is the SPDX identifier; several are joined by AND. NOASSERTION means that no text was
	// recognized.
	Licence string
	// Texts are the licence and notice files by name.
	Texts []text
}

type text struct{ Name, Content string }

// standard is the name of Go's standard library in the lists.
const standard = "std"

// modulesOf reads the modules that the Go command recorded in the binaries, without the main
// modules.
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
			if dep.Sum != "" { // modules of this repository have no sum
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

// Set parses NAME@VERSION=LICENCE=FILE.
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
