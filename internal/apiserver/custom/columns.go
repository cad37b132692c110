package custom

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"
)

// printer shows the objects of one version as rows of a table: their name, then a cell for each of
// the version's additionalPrinterColumns. Safe for concurrent use.
type printer struct {
	headers []metav1.TableColumnDefinition // the name's first
	cells   []cellFunc
}

// cellFunc returns an object's cell in one column; nil is an empty cell.
type cellFunc func(object map[string]any, now time.Time) any

func emptyCell(map[string]any, time.Time) any { return nil }

// Columns describes the cells of Row.
func (v *Version) Columns() []metav1.TableColumnDefinition { return v.printer().headers }

// Row returns the cells of one object. Ages are counted until now.
func (v *Version) Row(obj runtime.Object, now metav1.Time) []any {
	p, u := v.printer(), content(obj)
	row := make([]any, 0, len(p.headers))
	row = append(row, u.GetName())
	for _, cell := range p.cells {
		row = append(row, cell(u.Object, now.Time))
	}
	return row
}

// newPrinter compiles the columns. Without any, a table shows the age, as the API reference says. A
// column with an invalid path is left out: validation refuses it, but a foreign store may have it.
func newPrinter(columns []apiextensionsv1.CustomResourceColumnDefinition) *printer {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	if len(columns) == 0 {
		columns = []apiextensionsv1.CustomResourceColumnDefinition{{
			Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp", Description: docs["creationTimestamp"],
		}}
	}
	name := metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: docs["name"]}
	p := &printer{headers: []metav1.TableColumnDefinition{name}}
	for i := range columns {
		if cell, err := compileCell(&columns[i]); err == nil {
			p.headers = append(p.headers, header(&columns[i]))
			p.cells = append(p.cells, cell)
		}
	}
	return p
}

func header(c *apiextensionsv1.CustomResourceColumnDefinition) metav1.TableColumnDefinition {
	h := metav1.TableColumnDefinition{
		Name: c.Name, Type: c.Type, Format: c.Format, Priority: c.Priority, Description: c.Description,
	}
	if h.Description == "" {
		h.Description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
	}
	return h
}

// compileCell returns an error for an invalid path. A cell is empty for an object in which the path
// finds nothing, fails, or could find too much.
func compileCell(c *apiextensionsv1.CustomResourceColumnDefinition) (cellFunc, error) {
	template := "{" + c.JSONPath + "}"
	path := jsonpath.New(c.Name).AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, err
	}
	show, known := shownAs[c.Type]
	syntax, err := jsonpath.Parse(c.Name, template)
	if err != nil || loops(syntax.Root) || !known {
		return emptyCell, nil
	}
	limit := growthOf(c.JSONPath)
	return func(object map[string]any, now time.Time) any {
		if limit.exceedsLimit(object) {
			return nil
		}
		groups, err := path.FindResults(object)
		if err != nil || len(groups) == 0 || len(groups[0]) == 0 {
			return nil
		}
		return show(groups[0][0], now)
	}, nil
}

// shownAs has, for each type of a column, the function that turns a value into a cell. A value of
// another type makes an empty cell.
var shownAs = map[string]func(value reflect.Value, now time.Time) any{
	"string":  func(value reflect.Value, _ time.Time) any { return asText(value) },
	"integer": func(value reflect.Value, _ time.Time) any { return asInteger(value.Interface()) },
	"number":  func(value reflect.Value, _ time.Time) any { return asNumber(value.Interface()) },
	"boolean": func(value reflect.Value, _ time.Time) any { return asBoolean(value.Interface()) },
	"date":    func(value reflect.Value, now time.Time) any { return asAge(value.Interface(), now) },
}

// asText prints scalars as they are, and lists and maps as JSON.
func asText(value reflect.Value) any {
	var text strings.Builder
	if jsonpath.New("").PrintResults(&text, []reflect.Value{value}) != nil {
		return nil
	}
	return text.String()
}

// asInteger cuts off fractions, but for those of a json.Number.
func asInteger(value any) any {
	switch number := value.(type) {
	case int64:
		return number
	case float64:
		return int64(number)
	case json.Number:
		if whole, err := number.Int64(); err == nil {
			return whole
		}
	}
	return nil
}

func asNumber(value any) any {
	switch number := value.(type) {
	case int64:
		return float64(number)
	case float64:
		return number
	case json.Number:
		if real, err := number.Float64(); err == nil {
			return real
		}
	}
	return nil
}

func asBoolean(value any) any {
	if _, ok := value.(bool); ok {
		return value
	}
	return nil
}

// asAge shows how long ago a time was; one in the future is no time ago. The texts are upstream's.
func asAge(value any, now time.Time) any {
	text, ok := value.(string)
	if !ok {
		return nil
	}
	then, err := time.Parse(time.RFC3339, text)
	switch {
	case text == "" || text == "null" || err == nil && then.IsZero():
		return "<unknown>"
	case err != nil:
		return "<invalid>"
	}
	return duration.HumanDuration(max(now.Sub(then), 0))
}
