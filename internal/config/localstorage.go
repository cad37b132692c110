package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// defaultFolder is the folder of classes that name none.
const defaultFolder = "default"

func (c *Config) addLocalStorage(f *pflag.FlagSet) {
	f.BoolVar(&c.LocalStorage, "local-storage", c.LocalStorage, "make volumes on the nodes' disks for claims\nA new cluster gets the StorageClass local, which is its default class.")
}

// LocalFolders returns the node's folders for volumes by name.
func (c *Config) LocalFolders() map[string]string {
	folders := map[string]string{defaultFolder: c.Path("volumes")}
	for _, text := range c.LocalStoragePaths {
		name, path := splitFolder(text)
		folders[name] = filepath.Clean(path)
	}
	return folders
}

func splitFolder(text string) (name, path string) {
	if name, path, ok := strings.Cut(text, "="); ok {
		return name, path
	}
	return defaultFolder, text
}

func (c *Config) validateLocalStorage(bad func(field, value, allowed string)) {
	named := map[string]bool{}
	var paths []string
	for _, text := range c.LocalStoragePaths {
		name, path := splitFolder(text)
		switch {
		case len(validation.IsDNS1123Label(name)) > 0:
			bad("local-storage-path", text, "NAME=PATH with a name of lower case letters, digits and -")
		case !filepath.IsAbs(path) || filepath.Clean(path) == "/":
			bad("local-storage-path", text, "an absolute path below /")
		case named[name]:
			bad("local-storage-path", text, "one path for each name")
		}
		named[name] = true
		for _, other := range paths {
			if within(path, other) || within(other, path) {
				bad("local-storage-path", text, "a folder outside of "+other)
			}
		}
		paths = append(paths, path)
	}
	if c.LocalStorageReserved < 0 || c.LocalStorageReserved > 90 {
		bad("local-storage-reserved", fmt.Sprint(c.LocalStorageReserved), "a percentage, between 0 and 90")
	}
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
