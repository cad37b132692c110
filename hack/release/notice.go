package main

import (
	"fmt"
	"os"
	"strings"
)

const preface = `knarr %s
Copyright the knarr authors. Licensed under the Apache License, Version 2.0 (LICENSE).

The binary contains the software listed below under the licences that follow each name.

libseccomp and the GNU C Library are linked statically into the programs runc,
containerd-shim-runc-v2 and pause, which knarr carries. They are licensed under the GNU LGPL 2.1. Their
sources are in the archive knarr-lgpl-sources.tar of this release. To link a changed version, get knarr's
source at commit %s and run SECCOMP_SOURCE=FILE make build
(runtime/libseccomp.sh holds the version and the hash that it checks).
`

// writeNotice writes the names, versions and licence texts. A text that several modules share
// appears once.
func writeNotice(path string, o options, modules []module) error {
	var b strings.Builder
	fmt.Fprintf(&b, preface, o.version, o.commit)
	all := append(append([]module(nil), o.libs...), modules...)
	b.WriteString("\nContents\n========\n")
	for _, m := range all {
		fmt.Fprintf(&b, "%s %s: %s\n", m.Path, m.Version, m.Licence)
	}
	users := map[text][]string{}
	var order []text
	for _, m := range all {
		for _, t := range m.Texts {
			t.Content = strings.TrimSpace(strings.ReplaceAll(t.Content, "\r\n", "\n"))
			if users[t] == nil {
				order = append(order, t)
			}
			users[t] = append(users[t], m.Path+" "+m.Version)
		}
	}
	for _, t := range order {
		fmt.Fprintf(&b, "\n%s\n%s of:\n  %s\n\n%s\n", strings.Repeat("-", 80), t.Name, strings.Join(users[t], "\n  "), t.Content)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
