package check

import (
	"bytes"
	"embed"
	"io/fs"
	"path"
	"sync"

	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// examplesFS has objects of the built-in kinds. Together they have almost every field of the common
// ones. A test creates each of them at an API server.
//
//go:embed examples/*.yaml
var examplesFS embed.FS

// Examples returns the example manifests by file name.
func Examples() map[string][]byte {
	files := map[string][]byte{}
	names, err := fs.Glob(examplesFS, "examples/*.yaml")
	if err != nil {
		panic(err) // the pattern is constant
	}
	for _, name := range names {
		data, err := examplesFS.ReadFile(name)
		if err != nil {
			panic(err) // the file is in the binary
		}
		files[path.Base(name)] = data
	}
	return files
}

// example is one object of the examples.
type example struct {
	head
	node *goyaml.Node
}

// examples parses the examples once, in the order of the files.
var examples = sync.OnceValue(func() (list []example) {
	files := Examples()
	for _, name := range sortedKeys(files) {
		chunks, err := split(files[name])
		if err != nil {
			panic(err) // a test reads them all
		}
		f := &file{name: name, data: bytes.Clone(files[name])}
		for _, c := range chunks {
			if d, broken := parse(f, c); broken == nil {
				list = append(list, example{readHead(d.json), d.root})
			}
		}
	}
	return list
})
