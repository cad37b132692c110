package custom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"
)

// table is how a version's objects are shown as rows.
type table struct {
	definitions []metav1.TableColumnDefinition
	columns     []column
}

type column struct {
	kind string
	path *jsonpath.JSONPath // nil: not to be followed
	// How what the path finds can grow: with the object's depth for each descent, and by what it names more than once.
	growth
}

var metaDocs = metav1.ObjectMeta{}.SwaggerDoc()

// defaultColumns are those of a kind that names none.
var defaultColumns = []apiextensionsv1.CustomResourceColumnDefinition{
	{Name: "Age", Type: "date", Description: metaDocs["creationTimestamp"], JSONPath: ".metadata.creationTimestamp"},
}

func (v *Version) makeTable() *table {
	t := &table{definitions: []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: metaDocs["name"]}}}
	specs := v.spec.AdditionalPrinterColumns
	if len(specs) == 0 {
		specs = defaultColumns
	}
	for _, c := range specs {
		path := jsonpath.New(c.Name)
		if err := path.Parse("{" + c.JSONPath + "}"); err != nil {
			continue // validation lets none through; one from a foreign store is not shown
		}
		path.AllowMissingKeys(true)
		if parsed, err := jsonpath.Parse(c.Name, "{"+c.JSONPath+"}"); err != nil || loops(parsed.Root) {
			path = nil
		}
		description := c.Description
		if description == "" {
			description = fmt.Sprintf("Custom resource definition column (in JSONPath format): %s", c.JSONPath)
		}
		t.columns = append(t.columns, column{kind: c.Type, path: path, growth: growthOf(c.JSONPath)})
		t.definitions = append(t.definitions, metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: description, Priority: c.Priority})
	}
	return t
}

// Columns are the printer columns.
func (v *Version) Columns() []metav1.TableColumnDefinition { return v.columns().definitions }

// Row is one object's cells.
func (v *Version) Row(obj runtime.Object, now metav1.Time) []any {
	u := content(obj)
	t := v.columns()
	cells := make([]any, 1, len(t.columns)+1)
	cells[0] = u.GetName()
	for _, c := range t.columns {
		cells = append(cells, c.cell(u, now))
	}
	return cells
}

func (c column) cell(u *unstructured.Unstructured, now metav1.Time) any {
	if c.path == nil || c.tooMuch(u.Object) {
		return nil
	}
	found, err := c.path.FindResults(u.Object)
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		return nil
	}
	if c.kind == "string" {
		var text bytes.Buffer
		if err := c.path.PrintResults(&text, []reflect.Value{found[0][0]}); err != nil {
			return nil
		}
		return text.String()
	}
	return cell(c.kind, found[0][0].Interface(), now)
}

// cell shows a value as what the column is said to be; nothing when it is something else.
func cell(kind string, value any, now metav1.Time) any {
	switch kind {
	case "integer":
		switch n := value.(type) {
		case int64:
			return n
		case float64:
			return int64(n)
		case json.Number:
			if i, err := n.Int64(); err == nil {
				return i
			}
		}
	case "number":
		switch n := value.(type) {
		case int64:
			return float64(n)
		case float64:
			return n
		case json.Number:
			if f, err := n.Float64(); err == nil {
				return f
			}
		}
	case "boolean":
		if b, ok := value.(bool); ok {
			return b
		}
	case "date":
		if text, ok := value.(string); ok {
			return age(text, now)
		}
	}
	return nil
}

func age(text string, now metav1.Time) string {
	var at metav1.Time
	if err := at.UnmarshalQueryParameter(text); err != nil {
		return "<invalid>"
	}
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(max(now.Sub(at.Time), time.Duration(0)))
}
