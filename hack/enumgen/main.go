// Command enumgen writes, as a Go file, the values of the string types in k8s.io/api that are
// marked as enumerations, with their comments. Reflection does not see constants, and OpenAPI
// documents name them. It also lists the fields whose comment has an empty line between the text
// and its markers: there the list of values is one line further down.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const module = "k8s.io/api"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "enumgen: one argument: the file to write")
		os.Exit(2)
	}
	data, err := generate()
	if err == nil {
		err = os.WriteFile(os.Args[1], data, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "enumgen:", err)
		os.Exit(1)
	}
}

// value is one constant.
type value struct{ text, doc string }

// generate reads the module's sources that the build uses, and returns the file.
func generate() ([]byte, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", module, err)
	}
	root := strings.TrimSpace(string(out))
	enums, texts, apart := map[string][]value{}, map[string]string{}, map[string]string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (strings.Contains(d.Name(), "alpha") || strings.Contains(d.Name(), "beta")) {
			return fs.SkipDir // not served
		}
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || !strings.HasPrefix(filepath.Base(path), "types") || strings.HasSuffix(path, "_doc_generated.go") {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		return readFile(path, module+"/"+filepath.ToSlash(folder), enums, texts, apart)
	})
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(apart, func(_, typed string) bool { return enums[typed] == nil })
	return write(enums, slices.Sorted(maps.Keys(apart)))
}

// readFile collects the enumerations of one file, whose constants are in the same file. texts holds
// all constants so far. apart holds the fields with an empty line before their markers, with their
// types.
func readFile(path, pkg string, enums map[string][]value, texts, apart map[string]string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	marked := map[string]bool{}
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
			for _, s := range g.Specs {
				if t := s.(*ast.TypeSpec); hasMarker(g.Doc) || hasMarker(t.Doc) {
					marked[t.Name.Name] = true
				} else if fields, ok := t.Type.(*ast.StructType); ok {
					noteApart(fields, pkg, t.Name.Name, apart)
				}
			}
		}
	}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			c := s.(*ast.ValueSpec)
			doc := c.Doc
			if doc == nil && !g.Lparen.IsValid() {
				doc = g.Doc
			}
			name, text, ok := constant(c, texts)
			if ok {
				texts[pkg+"."+c.Names[0].Name] = text
			}
			if ok && marked[name] {
				enums[pkg+"."+name] = append(enums[pkg+"."+name], value{text, strings.TrimPrefix(plain(doc), c.Names[0].Name+" ")})
			}
		}
	}
	return nil
}

func noteApart(fields *ast.StructType, pkg, name string, apart map[string]string) {
	for _, f := range fields.Fields.List {
		typed := f.Type
		if star, ok := typed.(*ast.StarExpr); ok {
			typed = star.X
		}
		if t, ok := typed.(*ast.Ident); ok && len(f.Names) == 1 && emptyBeforeMarkers(f.Doc) {
			apart[pkg+"."+name+"."+f.Names[0].Name] = pkg + "." + t.Name
		}
	}
}

func emptyBeforeMarkers(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	last := ""
	for _, c := range doc.List {
		line := strings.TrimSpace(strings.TrimPrefix(c.Text, "//"))
		if strings.HasPrefix(line, "+") {
			return last == "//"
		}
		last = c.Text
	}
	return false
}

func hasMarker(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.TrimSpace(strings.TrimPrefix(c.Text, "//")) == "+enum"
	})
}

// constant parses `Name Type = "text"` and `Name = Type("text")`. Instead of the text, a constant
// of the core group may be named; the core group is read first.
func constant(c *ast.ValueSpec, texts map[string]string) (name, text string, ok bool) {
	if len(c.Values) != 1 {
		return "", "", false
	}
	expr := c.Values[0]
	if t, is := c.Type.(*ast.Ident); is {
		name = t.Name
	} else if call, is := expr.(*ast.CallExpr); is && len(call.Args) == 1 {
		t, is := call.Fun.(*ast.Ident)
		if !is {
			return "", "", false
		}
		name, expr = t.Name, call.Args[0]
	}
	if s, is := expr.(*ast.SelectorExpr); is {
		text, ok = texts[module+"/core/v1."+s.Sel.Name]
		return name, text, ok
	}
	literal, is := expr.(*ast.BasicLit)
	if !is || literal.Kind != token.STRING {
		return "", "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return name, text, err == nil
}

// plain returns a comment as one line, without markers.
func plain(doc *ast.CommentGroup) string {
	var words []string
	if doc != nil {
		for line := range strings.SplitSeq(doc.Text(), "\n") {
			if !strings.HasPrefix(line, "+") {
				words = append(words, strings.Fields(line)...)
			}
		}
	}
	return strings.Join(words, " ")
}

func write(enums map[string][]value, apart []string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("// Code generated by hack/enumgen. DO NOT EDIT.\n\npackage openapi\n\n// enumerations are the values of string types, by package and name.\nvar enumerations = map[string][]enumValue{\n")
	for _, name := range slices.Sorted(maps.Keys(enums)) {
		list := enums[name]
		slices.SortFunc(list, func(a, b value) int { return strings.Compare(a.text, b.text) })
		fmt.Fprintf(&b, "%q: {\n", name)
		for _, v := range list {
			fmt.Fprintf(&b, "{%q, %q},\n", v.text, v.doc)
		}
		b.WriteString("},\n")
	}
	b.WriteString("}\n\n// apartFields are the fields whose list of values stands one line further down, by package, type and name.\nvar apartFields = map[string]bool{\n")
	for _, name := range apart {
		fmt.Fprintf(&b, "%q: true,\n", name)
	}
	b.WriteString("}\n")
	return format.Source(b.Bytes())
}
