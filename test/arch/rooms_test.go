package arch

import (
	"bufio"
	"go/ast"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Limits of a package's own folder, without its tests: a reader can hold that much in mind.
const (
	maxLines = 8000
	maxFiles = 40
)

// maxServerMethods limits apiserver.Server, which only wires the packages below it.
const maxServerMethods = 40

// maxColumns limits comments; a tab counts as four.
const maxColumns = 100

// rooms are the packages of the API server, lowest first: each may import only those before it.
var rooms = []string{
	"wire", "telemetry", "registry", "past", "service", "verb", "definitions", "watch", "rest", "node", "local",
}

// vague are names of files that say nothing about their content.
var vague = regexp.MustCompile(`^(.*_)?(others?|misc|utils?|helpers?|common|stuff|more)(_test)?\.go$`)

// goFiles calls fn with every Go file of the repository that is not generated.
func goFiles(t *testing.T, fn func(path string)) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "../.." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "dist"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasPrefix(d.Name(), "zz_generated"):
			fn(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPackagesAreSmall(t *testing.T) {
	lines, files := map[string]int{}, map[string]int{}
	goFiles(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") || !strings.HasPrefix(path, "../../internal/") {
			return
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		folder := strings.TrimPrefix(filepath.Dir(path), "../../")
		lines[folder] += strings.Count(string(data), "\n")
		files[folder]++
	})
	for folder := range files {
		if lines[folder] > maxLines || files[folder] > maxFiles {
			t.Errorf("%s has %d lines in %d files, more than %d or %d: cut it along its words", folder, lines[folder], files[folder], maxLines, maxFiles)
		}
	}
}

func TestTheServerOnlyWires(t *testing.T) {
	methods := 0
	sources(t, func(folder string, _ *token.FileSet, file *ast.File) {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if folder != "internal/apiserver" || !ok || f.Recv == nil {
				continue
			}
			if pointer, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok {
				if name, ok := pointer.X.(*ast.Ident); ok && name.Name == "Server" {
					methods++
				}
			}
		}
	})
	if methods == 0 || methods > maxServerMethods {
		t.Errorf("apiserver.Server has %d methods, want 1 to %d: give the work a type of its own", methods, maxServerMethods)
	}
}

func TestRoomsImportOnlyLowerRooms(t *testing.T) {
	const server = module + "internal/apiserver"
	for _, p := range packages(t) {
		at := slices.Index(rooms, strings.TrimPrefix(p.ImportPath, server+"/"))
		if !strings.HasPrefix(p.ImportPath, server+"/") {
			continue
		}
		for _, imported := range p.Imports {
			to := slices.Index(rooms, strings.TrimPrefix(imported, server+"/"))
			switch {
			case imported == server:
				t.Errorf("%s imports apiserver: the server is above its packages", p.ImportPath)
			case to >= 0 && at < 0:
				t.Errorf("%s imports %s: it is below the rooms of the API server, or missing in the list of rooms", p.ImportPath, imported)
			case to >= 0 && to >= at:
				t.Errorf("%s imports %s: a room imports only rooms before it in the list", p.ImportPath, imported)
			}
		}
	}
}

func TestFilesAreNamedAfterTheirSubject(t *testing.T) {
	goFiles(t, func(path string) {
		if vague.MatchString(filepath.Base(path)) {
			t.Errorf("%s: name the file after what is in it", strings.TrimPrefix(path, "../../"))
		}
	})
}

func TestCommentsFitTheScreen(t *testing.T) {
	goFiles(t, func(path string) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range longComments(data) {
			t.Errorf("%s:%d: a comment has more than %d columns", strings.TrimPrefix(path, "../../"), line, maxColumns)
		}
	})
}

// longComments returns the numbers of the lines with a comment that ends beyond maxColumns.
// Directives (//go:, //nolint) and comments with a URL may be longer: they cannot be wrapped.
func longComments(src []byte) (long []int) {
	text := []string{""} // lines count from 1
	for s := bufio.NewScanner(strings.NewReader(string(src))); s.Scan(); {
		text = append(text, s.Text())
	}
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return long
		}
		if tok != token.COMMENT || strings.HasPrefix(literal, "//go:") || strings.HasPrefix(literal, "//nolint") || strings.Contains(literal, "://") {
			continue
		}
		first := file.Line(pos)
		for i := range strings.Split(literal, "\n") {
			line := first + i
			if line < len(text) && len([]rune(strings.ReplaceAll(text[line], "\t", "    "))) > maxColumns {
				long = append(long, line)
			}
		}
	}
}

func TestLongCommentsAreFound(t *testing.T) {
	short, long := "// short", "\tx := 1 // "+strings.Repeat("word ", 20)
	got := longComments([]byte("package p\n" + short + "\nfunc f() {\n" + long + "\n\ty := `// " + strings.Repeat("text ", 30) + "`\n}\n"))
	if !slices.Equal(got, []int{4}) {
		t.Errorf("lines %v, want 4 alone", got)
	}
}
