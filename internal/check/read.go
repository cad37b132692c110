package check

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of the input. They leave room for any repository that one person can read.
const (
	maxFile      = 64 << 20 // bytes
	maxFiles     = 20_000
	maxTotal     = 512 << 20 // bytes
	maxDocuments = 200_000
)

// stdinName names standard input on the command line, and in findings.
const (
	stdinArgument = "-"
	stdinName     = "<stdin>"
)

// file is a file in memory.
type file struct {
	name string
	data []byte
	// listed is set for files of a folder. Other files are named by the caller, so each of their
	// documents must be an object.
	listed bool
}

// readAll reads files, folders and standard input, in the order of the arguments. Files of a folder
// are in the order of their names. recursive reads folders below folders.
func readAll(names []string, stdin io.Reader, recursive bool) ([]file, error) {
	r := reader{stdin: stdin, recursive: recursive, seen: map[string]bool{}}
	for _, name := range names {
		if err := r.add(name); err != nil {
			return nil, err
		}
	}
	return r.files, nil
}

type reader struct {
	stdin     io.Reader
	recursive bool
	seen      map[string]bool
	files     []file
	total     int
}

func (r *reader) add(name string) error {
	if name == stdinArgument {
		return r.take(stdinName, r.stdin, false)
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return r.folder(name)
	}
	return r.open(name, false)
}

func (r *reader) folder(name string) error {
	before := len(r.files)
	err := filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if path != name && (!r.recursive || strings.HasPrefix(entry.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		case !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			return nil
		}
		return r.open(path, true)
	})
	if err == nil && len(r.files) == before {
		hint := ""
		if !r.recursive {
			hint = "; -R also reads the folders below it"
		}
		return fmt.Errorf("%s: there are no .yaml, .yml or .json files%s", name, hint)
	}
	return err
}

func (r *reader) open(name string, listed bool) error {
	if r.seen[name] {
		return nil
	}
	r.seen[name] = true
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.take(name, f, listed)
}

func (r *reader) take(name string, from io.Reader, listed bool) error {
	if len(r.files) == maxFiles {
		return fmt.Errorf("there are more than %d files", maxFiles)
	}
	data, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxFile {
		return fmt.Errorf("%s: the file is larger than %d bytes", name, maxFile)
	}
	if r.total += len(data); r.total > maxTotal {
		return fmt.Errorf("the files are larger than %d bytes together", maxTotal)
	}
	r.files = append(r.files, file{name: name, data: data, listed: listed})
	return nil
}

// chunk is the text of one document in a file.
type chunk struct {
	text []byte
	line int // lines of the file before the text
}

var errTooManyDocuments = fmt.Errorf("there are more than %d documents", maxDocuments)

// split splits a file into documents as kubectl does: at lines that begin with ---, and between
// JSON values. Documents without content are left out.
func split(data []byte) (list []chunk, err error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if chunks, ok := splitJSON(data); ok {
		return chunks, nil
	}
	start, startLine, line := 0, 0, 0
	end := func(at int) {
		if text := data[start:at]; !blank(text) {
			list = append(list, chunk{text, startLine})
		}
	}
	for at := 0; at < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		if separates(data[at:next]) {
			end(at)
			start, startLine = next, line+1
			if len(list) > maxDocuments {
				return nil, errTooManyDocuments
			}
		}
		at = next
	}
	end(len(data))
	return list, nil
}

// separates reports whether a line is --- with nothing but a comment after it.
func separates(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	rest = bytes.TrimSpace(rest)
	return ok && (len(rest) == 0 || rest[0] == '#')
}

// blank reports whether a text has only comments and white space.
func blank(text []byte) bool {
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// Errors of documents.
var (
	errNoObject = errors.New("the document is no object; a document with apiVersion and kind is allowed")
	errTooLarge = fmt.Errorf("the document is larger than %d bytes, the limit of the API server", maxDocument)
	errTooDeep  = fmt.Errorf("the document is nested deeper than %d levels", maxDepth)
)
