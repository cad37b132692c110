package service

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// Name is the name of the service. A machine has one.
const Name = "knarr"

// SecretsFile is the configuration file of the secrets on the command line.
const SecretsFile = "/etc/knarr/service.yaml"

// mark is the comment that only knarr's definitions contain.
const mark = "# Written by `knarr install`; `knarr uninstall` removes it."

// Comments of a definition that an uninstallation and a later installation read.
const (
	dataFolderComment = "# Data folder: "
	commandComment    = "# Command: "
)

// Service is a command line that the machine runs.
type Service struct {
	// Program is the absolute path of knarr.
	Program string
	// Args begin with the command, such as up. They contain no secrets.
	Args []string
	// DataDir is the absolute path of the data folder.
	DataDir string
}

// check returns an error for words that a definition cannot contain.
func (s Service) check() error {
	for _, word := range append([]string{s.Program, s.DataDir}, s.Args...) {
		if at := strings.IndexFunc(word, unicode.IsControl); at >= 0 {
			return fmt.Errorf("%q is not usable: text without control characters such as line breaks", word)
		}
	}
	if !filepath.IsAbs(s.Program) {
		return fmt.Errorf("program %q is not usable: an absolute path", s.Program)
	}
	return nil
}

// Command returns the command line as words of a shell.
func (s Service) Command() string {
	words := make([]string, 0, len(s.Args)+1)
	for _, word := range append([]string{s.Program}, s.Args...) {
		words = append(words, shellWord(word))
	}
	return strings.Join(words, " ")
}

// header returns the comments at the top of a definition.
func (s Service) header() string {
	return mark + "\n" + dataFolderComment + s.DataDir + "\n" + commandComment + s.Command() + "\n"
}

// shellWord quotes a word for a shell if it needs it.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) && r < unicode.MaxASCII || unicode.IsDigit(r) && r < unicode.MaxASCII || strings.ContainsRune("-_./:=,@%+", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// ErrForeign is the error for a definition that knarr has not written.
var ErrForeign = errors.New("knarr has not written it")

// definition is what a file of knarr says about its service.
type definition struct {
	text, dataDir, command string
}

// read returns the definition at a path. It is nil if there is none, and an error that wraps
// ErrForeign if it is not knarr's.
func read(path string) (*definition, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	const most = 1 << 20
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s: %w; move it away or remove it", path, ErrForeign)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := parse(string(content))
	if found == nil {
		return nil, fmt.Errorf("%s: %w; move it away or remove it", path, ErrForeign)
	}
	return found, nil
}

// parse reads a definition's comments. It returns nil for a text without the mark.
func parse(text string) *definition {
	d := &definition{text: text}
	marked := false
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == mark {
			marked = true
		}
		if dir, ok := strings.CutPrefix(line, dataFolderComment); ok && marked && d.dataDir == "" {
			d.dataDir = dir
		}
		if command, ok := strings.CutPrefix(line, commandComment); ok && marked && d.command == "" {
			d.command = command
		}
	}
	if !marked {
		return nil
	}
	return d
}
