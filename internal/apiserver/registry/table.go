package registry

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// Table returns objects as rows of their kind's printer columns. In a watch, only the first event
// has the column definitions.
func (e *Endpoint) Table(objs []runtime.Object, listMeta metav1.ListMeta, f wire.Format, withColumns bool) (*metav1.Table, error) {
	t := &metav1.Table{ListMeta: listMeta}
	if columns := e.columns(); len(objs) > 0 || columns[len(columns)-1].Name != createdAt {
		t.Rows = make([]metav1.TableRow, 0, len(objs))
	}
	if withColumns {
		t.ColumnDefinitions = e.columns()
	}
	if order := e.Strategy.RowOrder; order != nil {
		objs = slices.SortedFunc(slices.Values(objs), order) // sort a copy
	}
	now := metav1.NewTime(e.Shared.Clock())
	for _, obj := range objs {
		row := metav1.TableRow{Cells: e.Cells(obj, now)}
		if err := e.fillRowObject(&row, obj, f); err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// fillRowObject adds to the row what IncludeObject requests; metadata by default.
func (e *Endpoint) fillRowObject(row *metav1.TableRow, obj runtime.Object, f wire.Format) error {
	switch f.IncludeObject {
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
	raw, err := json.Marshal(e.PartialMetadata(obj))
	if err != nil {
		return err
	}
	version := f.AsVersion
	if version == "" {
		version = "v1"
	}
	gvk := metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	gvk.Version = version
	row.Object.Raw = wire.WithTypeMeta(nil, gvk, raw)
	return nil
}

// createdAt is the last column of kinds without columns of their own. Upstream returns null rows
// for an empty list of these.
const createdAt = "Created At"

var objectMetaDocs = metav1.ObjectMeta{}.SwaggerDoc()

func (e *Endpoint) columns() []metav1.TableColumnDefinition {
	if e.Strategy.Row != nil {
		return e.Strategy.Columns
	}
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: objectMetaDocs["name"]},
		{Name: createdAt, Type: "date", Description: objectMetaDocs["creationTimestamp"]}}
}

// Cells returns the table cells of an object.
func (e *Endpoint) Cells(obj runtime.Object, now metav1.Time) []any {
	if e.Strategy.Row != nil {
		return e.Strategy.Row(obj, now)
	}
	meta := wire.Accessor(obj)
	return []any{meta.GetName(), meta.GetCreationTimestamp().UTC().Format(time.RFC3339)}
}
