package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	goyaml "sigs.k8s.io/yaml/goyaml.v3"

	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

const (
	maxDocument = 3 << 20 // bytes, the limit of a request's body
	maxDepth    = 500     // far below what decoders refuse
)

// document is one parsed document.
type document struct {
	file *file
	line int          // lines of the file before the document
	root *goyaml.Node // the mapping; nil if the document is broken
	json []byte
	// duplicates are keys that stand a second time in their mapping.
	duplicates []duplicate
}

type duplicate struct {
	path  string
	key   *goyaml.Node
	first *goyaml.Node
}

// splitJSON splits a file of JSON values, one after the other; false for anything else.
func splitJSON(data []byte) (list []chunk, ok bool) {
	if start := bytes.TrimLeft(data, " \t\r\n"); len(start) == 0 || start[0] != '{' {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	for at := int64(0); ; {
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return list, len(list) > 0 && len(bytes.TrimSpace(data[at:])) == 0
		}
		end := decoder.InputOffset()
		// The value's text keeps its first line's indentation, so that columns are right.
		begin := end - int64(len(value))
		lineStart := int64(bytes.LastIndexByte(data[:begin], '\n') + 1)
		text := append(bytes.Repeat([]byte(" "), int(min(begin-lineStart, 1<<16))), value...)
		list = append(list, chunk{text, bytes.Count(data[:begin], []byte("\n"))})
		if len(list) > maxDocuments {
			return nil, false
		}
		at = end
	}
}

// parse parses a document. The Finding describes a syntax error, with its line in the file.
func parse(f *file, c chunk) (*document, *Finding) {
	d := &document{file: f, line: c.line}
	fail := func(line int, err error) *Finding {
		return &Finding{File: f.name, Line: line, Column: 1, Severity: Error, Message: err.Error()}
	}
	first := c.line + 1 + firstLine(c.text)
	if len(c.text) > maxDocument {
		return nil, fail(first, errTooLarge)
	}
	if err := bounds.Aliases(c.text); err != nil {
		return nil, fail(syntaxLine(c, first, err), syntaxError(err))
	}
	var root goyaml.Node
	if err := goyaml.Unmarshal(c.text, &root); err != nil {
		return nil, fail(syntaxLine(c, first, err), syntaxError(err))
	}
	if len(root.Content) != 1 || root.Content[0].Kind != goyaml.MappingNode {
		return nil, fail(first, errNoObject)
	}
	d.root = root.Content[0]
	if err := d.walk(d.root, "", 0); err != nil {
		return nil, fail(first, err)
	}
	var err error
	if d.json, err = yaml.YAMLToJSON(c.text); err != nil {
		return nil, fail(syntaxLine(c, first, err), syntaxError(err))
	}
	return d, nil
}

func firstLine(text []byte) (lines int) {
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return lines
		}
		lines++
	}
	return 0
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// syntaxLine returns the line of the file that a YAML error names.
func syntaxLine(c chunk, first int, err error) int {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return c.line + n
		}
	}
	return first
}

// syntaxError drops the library's prefix and its line, which counts from the document's start.
func syntaxError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if i := yamlLine.FindStringIndex(text); i != nil && !strings.Contains(text, "\n") {
		text = text[:i[0]] + text[i[1]:]
	}
	switch {
	case strings.Contains(text, "found character that cannot start any token"):
		text += "; a line is indented by spaces, not by tabs"
	case strings.Contains(text, "mapping values are not allowed in this context"):
		text += "; a value with \": \" in it needs quotes, and a key is indented as its neighbours"
	}
	return errors.New("invalid YAML: " + text)
}

// walk moves the nodes' lines to those of the file, and collects duplicate keys.
func (d *document) walk(n *goyaml.Node, path string, depth int) error {
	n.Line += d.line
	switch {
	case depth > maxDepth:
		return errTooDeep
	case n.Kind == goyaml.SequenceNode:
		for i, item := range n.Content {
			if err := d.walk(item, fmt.Sprintf("%s[%d]", path, i), depth+1); err != nil {
				return err
			}
		}
	case n.Kind == goyaml.MappingNode:
		seen := make(map[string]*goyaml.Node, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			at := join(path, key.Value)
			if first, ok := seen[key.Value]; ok && key.Kind == goyaml.ScalarNode {
				d.duplicates = append(d.duplicates, duplicate{at, key, first})
			} else {
				seen[key.Value] = key
			}
			if err := d.walk(key, at, depth+1); err != nil {
				return err
			}
			if err := d.walk(n.Content[i+1], at, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
