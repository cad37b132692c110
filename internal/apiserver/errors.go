package apiserver

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/store"
)

// statusKind is the kind of a Status on the wire: v1, not meta.k8s.io/v1.
var statusKind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}

// statusOf returns the Status that a client gets for an error.
func statusOf(err error) *metav1.Status {
	var s apierrors.APIStatus
	if errors.As(err, &s) {
		status := s.Status()
		if status.Status == "" {
			status.Status = metav1.StatusFailure
		}
		if status.Code == 0 {
			status.Code = http.StatusInternalServerError
		}
		status.TypeMeta = metav1.TypeMeta{}
		return &status
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, store.ErrUnavailable):
		var s apierrors.APIStatus
		if errors.As(storeError(err), &s) {
			status := s.Status()
			return &status
		}
		return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Message: err.Error()}
	}
	return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonUnknown, Message: err.Error()}
}

// asStatusError turns any error into a Status, so that in-process clients handle it like a remote
// one.
func asStatusError(err error) error {
	if err == nil || isStatus(err) {
		return err
	}
	return &apierrors.StatusError{ErrStatus: *statusOf(err)}
}

// respondError writes the error's Status.
func respondError(w http.ResponseWriter, f format, err error) {
	status := statusOf(err)
	if !f.forced {
		recordStatus(recordOf(w), status)
	}
	f.as, f.stream = "", false
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	body, encodeErr := encodeAs(status, statusKind, f)
	if encodeErr != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	respond(w, int(status.Code), f, body)
}

// unnamed returns err as upstream answers errors without a reason: a 500 with the bare message.
func unnamed(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}}
}

// recorder is a ResponseWriter that has the audit record of its request.
type recorder interface{ Record() *audit.Record }

// recordOf returns the audit record of the request that w answers; nil when there is none.
func recordOf(w http.ResponseWriter) *audit.Record {
	if r, ok := w.(recorder); ok {
		return r.Record()
	}
	return nil
}
