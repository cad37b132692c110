package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	apiVersion = "kubelet.config.k8s.io/v1beta1"
	kind       = "KubeletConfiguration"
	// maxFile is the largest configuration file in bytes.
	maxFile = 1 << 20
)

// layer is the content of one file.
type layer struct {
	file string
	data map[string]any
}

// Read reads a file and the *.conf files below a folder, in lexical order of their paths; either
// may be "". A later file wins: it replaces values and lists, and merges maps (KEP-3983). Unknown
// and repeated fields are errors, and so is a value that knarr does not support.
func Read(file, dir string) (*Settings, error) {
	var files []string
	if file != "" {
		files = append(files, file)
	}
	if dir != "" {
		dropIns, err := dropIns(dir)
		if err != nil {
			return nil, fmt.Errorf("kubelet configuration folder: %w", err)
		}
		files = append(files, dropIns...)
	}
	var layers []layer
	var errs []error
	for _, name := range files {
		text, err := readFile(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("kubelet configuration: %w", err))
			continue
		}
		data, err := decode(text)
		if err != nil {
			for _, one := range each(err) {
				errs = append(errs, fmt.Errorf("%s: %w", name, one))
			}
			continue
		}
		layers = append(layers, layer{name, data})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return build(layers)
}

// dropIns lists the *.conf files below dir.
func dropIns(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && filepath.Ext(path) == ".conf" {
			files = append(files, path)
		}
		return err
	})
	return files, err // WalkDir is in lexical order
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", name, maxFile)
	}
	return data, err
}

// decode checks one file strictly and returns its fields.
func decode(text []byte) (map[string]any, error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var c kubeletconfig.KubeletConfiguration
	strict, err := kjson.UnmarshalStrict(asJSON, &c)
	if err != nil {
		return nil, wrongType(err)
	}
	if c.APIVersion != apiVersion || c.Kind != kind {
		return nil, fmt.Errorf("apiVersion %q, kind %q: wanted apiVersion: %s and kind: %s", c.APIVersion, c.Kind, apiVersion, kind)
	}
	if err := errors.Join(strict...); err != nil {
		return nil, err
	}
	data := map[string]any{}
	numbers := json.NewDecoder(bytes.NewReader(asJSON))
	numbers.UseNumber()
	if err := numbers.Decode(&data); err != nil {
		return nil, err
	}
	delete(data, "apiVersion")
	delete(data, "kind")
	return data, nil
}

// wrongType names the field of a value of another type, without Go's words.
func wrongType(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	wanted := map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.String: "text", reflect.Slice: "a list", reflect.Map: "a map", reflect.Struct: "a map",
		reflect.Int32: "a number", reflect.Int64: "a number", reflect.Float64: "a number", reflect.Uint32: "a number",
	}[wrong.Type.Kind()]
	if wanted == "" {
		return err
	}
	return fmt.Errorf("%s: a %s is not usable: %s", wrong.Field, wrong.Value, wanted)
}

// build merges the layers, completes the result and checks it.
func build(layers []layer) (*Settings, error) {
	s := &Settings{from: map[string]source{}}
	merged := map[string]any{}
	for _, l := range layers {
		merge(merged, l.data)
		for _, f := range Fields {
			if v, ok := lookup(l.data, f.Name); ok {
				s.from[f.Name] = source{l.file, zero(v)}
			}
		}
	}
	text, err := json.Marshal(merged)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &s.KubeletConfiguration); err != nil {
		return nil, err
	}
	complete(s)
	return s, s.Validate()
}

// merge applies patch to target: maps are merged, null removes, all other values replace.
func merge(target, patch map[string]any) {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		have, both := target[key].(map[string]any)
		switch {
		case value == nil:
			delete(target, key)
		case isMap && both:
			merge(have, inner)
		case isMap:
			fresh := map[string]any{}
			merge(fresh, inner)
			target[key] = fresh
		default:
			target[key] = value
		}
	}
}

// lookup returns the value at a dotted path.
func lookup(data map[string]any, path string) (any, bool) {
	for {
		first, rest, more := strings.Cut(path, ".")
		value, ok := data[first]
		if !ok || !more {
			return value, ok
		}
		if data, ok = value.(map[string]any); !ok {
			return nil, false
		}
		path = rest
	}
}

// zero reports whether a value stands for "not set" in files that kubeadm writes.
func zero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == "" || v == "0s" || v == "0"
	case json.Number:
		return v == "0"
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
