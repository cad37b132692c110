package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// process lists the packages of which a process has one instance. They may change what the whole
// process shares; a library inside a program may not (ADR 42).
var process = []string{"internal/run", "internal/cli/...", "cmd/..."}

// changed lists globals that a library offers no other way to set (ADR 42).
var changed = map[string]string{
	"wal.SegmentSizeBytes": "internal/store/etcd", // etcd allocates 64 MB for each store otherwise
}

// sources calls fn with every non-test file below the product's folders.
func sources(t *testing.T, fn func(path string, files *token.FileSet, file *ast.File)) {
	t.Helper()
	for _, folder := range []string{"internal", "knarrtest", "cmd"} {
		err := filepath.WalkDir("../../"+folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			fn(strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../"), files, file)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Two clusters in one program would count together in a collector of a package.
func TestMetricsBelongToInstances(t *testing.T) {
	sources(t, func(_ string, files *token.FileSet, file *ast.File) {
		for _, decl := range file.Decls {
			variables, ok := decl.(*ast.GenDecl)
			if !ok || variables.Tok != token.VAR {
				continue
			}
			ast.Inspect(variables, func(n ast.Node) bool {
				if _, inner := n.(*ast.FuncLit); inner {
					return false
				}
				if call, ok := n.(*ast.CallExpr); ok && collects(call) {
					t.Errorf("%s: a package variable counts for all clusters of a program; make it a field", files.Position(call.Pos()))
				}
				return true
			})
		}
	})
}

// collects reports whether a call makes a collector or a registry.
func collects(call *ast.CallExpr) bool {
	of, name, ok := selected(call.Fun)
	if !ok || of != "prometheus" && of != "promauto" {
		return false
	}
	for _, kind := range []string{"Counter", "Gauge", "Histogram", "Summary", "Untyped", "Registry", "PedanticRegistry"} {
		if strings.HasPrefix(name, "New"+kind) {
			return true
		}
	}
	return false
}

// selected returns the names of X.Sel, if X is the name of a package.
func selected(e ast.Expr) (of, name string, ok bool) {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", "", false
	}
	x, ok := s.X.(*ast.Ident)
	if !ok || x.Obj != nil {
		return "", "", false
	}
	return x.Name, s.Sel.Name, true
}

// A program that contains a cluster uses the same libraries.
func TestLibrariesKeepTheirGlobals(t *testing.T) {
	sources(t, func(pkg string, files *token.FileSet, file *ast.File) {
		if matchesAny(process, pkg) {
			return
		}
		imported := imports(file)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if of, name, ok := selected(left); ok && n.Tok != token.DEFINE && imported[of] && changed[of+"."+name] != pkg {
						t.Errorf("%s: %s.%s belongs to the whole program", files.Position(n.Pos()), of, name)
					}
				}
			case *ast.SelectorExpr:
				if _, name, ok := selected(n); ok && name == "BoundSharedEnvironments" {
					t.Errorf("%s: only a process of knarr changes the shared CEL environments", files.Position(n.Pos()))
				}
			}
			return true
		})
	})
}

// imports returns the names under which a file imports packages.
func imports(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, imp := range file.Imports {
		path, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			continue
		}
		name := path[strings.LastIndexByte(path, '/')+1:]
		if imp.Name != nil {
			name = imp.Name.Name
		}
		names[name] = true
	}
	return names
}

// importers lists libraries that a single package imports.
var importers = map[string]string{
	// The package allows less than the library.
	"github.com/go-jose/go-jose/v4": "internal/auth/jws",
}

func TestLibrariesBehindOnePackage(t *testing.T) {
	sources(t, func(pkg string, files *token.FileSet, file *ast.File) {
		for _, imp := range file.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			if door, ok := importers[path]; ok && pkg != door {
				t.Errorf("%s: import %s instead of %s", files.Position(imp.Pos()), door, path)
			}
		}
	})
}
