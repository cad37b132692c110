package apiserver

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// table returns objects as rows of their kind's printer columns. In a watch, only the first event
// has the column definitions.
func (e *endpoint) table(objs []runtime.Object, listMeta metav1.ListMeta, f format, withColumns bool) (*metav1.Table, error) {
	t := &metav1.Table{ListMeta: listMeta}
	if columns := e.columns(); len(objs) > 0 || columns[len(columns)-1].Name != createdAt {
		t.Rows = make([]metav1.TableRow, 0, len(objs))
	}
	if withColumns {
		t.ColumnDefinitions = e.columns()
	}
	if order := e.strategy.RowOrder; order != nil {
		objs = slices.SortedFunc(slices.Values(objs), order) // sort a copy
	}
	now := metav1.NewTime(e.shared.clock())
	for _, obj := range objs {
		row := metav1.TableRow{Cells: e.cells(obj, now)}
		if err := e.fillRowObject(&row, obj, f); err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// fillRowObject adds to the row what includeObject requests; metadata by default.
func (e *endpoint) fillRowObject(row *metav1.TableRow, obj runtime.Object, f format) error {
	switch f.includeObject {
	case metav1.IncludeNone:
		return nil
	case metav1.IncludeObject:
		raw, err := e.marshalJSON(obj)
		if err != nil {
			return err
		}
		row.Object.Raw = e.document(raw)
		return nil
	}
	raw, err := json.Marshal(e.partialMetadata(obj))
	if err != nil {
		return err
	}
	version := f.asVersion
	if version == "" {
		version = "v1"
	}
	gvk := metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	gvk.Version = version
	row.Object.Raw = withTypeMeta(nil, gvk, raw)
	return nil
}

// createdAt is the last column of kinds without columns of their own. Upstream returns null rows
// for an empty list of these.
const createdAt = "Created At"

var objectMetaDocs = metav1.ObjectMeta{}.SwaggerDoc()

func (e *endpoint) columns() []metav1.TableColumnDefinition {
	if e.strategy.Row != nil {
		return e.strategy.Columns
	}
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: objectMetaDocs["name"]},
		{Name: createdAt, Type: "date", Description: objectMetaDocs["creationTimestamp"]}}
}

func (e *endpoint) cells(obj runtime.Object, now metav1.Time) []any {
	if e.strategy.Row != nil {
		return e.strategy.Row(obj, now)
	}
	meta := accessor(obj)
	return []any{meta.GetName(), meta.GetCreationTimestamp().UTC().Format(time.RFC3339)}
}
