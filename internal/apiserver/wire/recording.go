package wire

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
)

// RecordRequest adds a request's object to the audit record.
func RecordRequest(rec *audit.Record, obj runtime.Object, gvk schema.GroupVersionKind) {
	if rec == nil || obj == nil {
		return
	}
	if acc, err := meta.Accessor(obj); err == nil {
		rec.Identify(acc)
	}
	if !rec.WantsRequest() {
		return
	}
	if doc, err := EncodeAs(obj, gvk, JSONFormat); err == nil {
		rec.Request(doc)
	}
}

// RecordStatus adds the Status that is the answer to the audit record.
func RecordStatus(rec *audit.Record, status *metav1.Status) {
	rec.Status(status)
	if !rec.WantsResponse() {
		return
	}
	if doc, err := EncodeAs(status, StatusKind, JSONFormat); err == nil {
		rec.Response(doc)
	}
}

// RecordDeletion adds the delete options to the audit record, with the kind and version that
// upstream writes there.
func RecordDeletion(rec *audit.Record, opts *metav1.DeleteOptions) {
	if !rec.WantsRequest() {
		return
	}
	shown := *opts
	shown.TypeMeta = metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: metav1.GroupName + "/" + runtime.APIVersionInternal}
	if doc, err := json.Marshal(&shown); err == nil {
		rec.Request(doc)
	}
}

// RecordPatch adds a patch to the audit record; the YAML of an apply is converted to JSON.
func RecordPatch(rec *audit.Record, patch []byte) {
	if !rec.WantsRequest() {
		return
	}
	if !json.Valid(patch) {
		var err error
		if patch, err = YAMLToJSON(patch); err != nil {
			return // the request will be refused
		}
	}
	rec.Request(patch)
}
