package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/store"
)

// ErrNoCredentials means that a request has no credentials, as opposed to bad ones.
var ErrNoCredentials = errors.New("no credentials")

// StatusKind is the kind of a Status on the wire: v1, not meta.k8s.io/v1.
var StatusKind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}

// StatusOf returns the Status that a client gets for an error.
func StatusOf(err error) *metav1.Status {
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
		if errors.As(StoreError(err), &s) {
			status := s.Status()
			return &status
		}
		return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Message: err.Error()}
	}
	return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonUnknown, Message: err.Error()}
}

// AsStatusError turns any error into a Status, so that in-process clients handle it like a remote
// one.
func AsStatusError(err error) error {
	if err == nil || IsStatus(err) {
		return err
	}
	return &apierrors.StatusError{ErrStatus: *StatusOf(err)}
}

// RespondError writes the error's Status.
func RespondError(w http.ResponseWriter, f Format, err error) {
	status := StatusOf(err)
	if !f.fallback {
		RecordStatus(RecordOf(w), status)
	}
	f.As, f.Stream = "", false
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	body, encodeErr := EncodeAs(status, StatusKind, f)
	if encodeErr != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	Respond(w, int(status.Code), f, body)
}

// InternalServerError returns err as upstream answers errors without a reason: a 500 with the bare
// message.
func InternalServerError(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}}
}

// recorder is a ResponseWriter that has the audit record of its request.
type recorder interface{ Record() *audit.Record }

// RecordOf returns the audit record of the request that w answers; nil when there is none.
func RecordOf(w http.ResponseWriter) *audit.Record {
	if r, ok := w.(recorder); ok {
		return r.Record()
	}
	return nil
}

// NotFoundPath is upstream's answer to an unknown path: plain text, which clients recognize.
func NotFoundPath(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte("404 page not found\n"))
}

// IsStatus reports whether err has a Status.
func IsStatus(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s)
}

// StoreError translates an error of the store into an answer for clients.
func StoreError(err error) error {
	var full *store.NoSpaceError
	switch {
	case errors.As(err, &full):
		return InternalServerError(full) // begins with upstream's text, without the key
	case errors.Is(err, store.ErrNoSpace):
		return InternalServerError(store.ErrNoSpace)
	case errors.Is(err, store.ErrUnavailable):
		return TryAgain(err)
	// ErrFuture: the deadline passed, too
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, cache.ErrFuture):
		return apierrors.NewTimeoutError("request did not complete within requested timeout - context deadline exceeded", 0)
	case errors.Is(err, store.ErrCompacted):
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	case errors.Is(err, store.ErrFenced):
		return fencedError{apierrors.NewForbidden(schema.GroupResource{}, "", err), err}
	case errors.Is(err, store.ErrTooLarge):
		return InternalServerError(store.ErrTooLarge) // without the key, as upstream
	}
	return err
}

// fencedError is the answer to a component of this process that leads no more. It is not a
// conflict, so no loop reads the object again and retries.
type fencedError struct {
	*apierrors.StatusError
	cause error // a store.ErrFenced
}

// Unwrap implements errors.Is and errors.As.
func (e fencedError) Unwrap() []error { return []error{e.StatusError, e.cause} }

// CommitError is StoreError for a failed commit. Its outcome may be unknown: then the answer is a
// timeout, which clients do not repeat by themselves. A repeated write could be made twice, or
// could undo a write that came between.
func CommitError(err error) error {
	if errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrNotBegun) {
		return unconfirmed{apierrors.NewTimeoutError(fmt.Sprintf("the store did not confirm the write, which may have been made or not; read the object before trying again: %v", err), 0)}
	}
	return StoreError(err)
}

// unconfirmed is the answer to a write with an unknown outcome.
type unconfirmed struct{ *apierrors.StatusError }

// Unwrap implements errors.Is and errors.As.
func (e unconfirmed) Unwrap() error { return e.StatusError }

// Unconfirmed reports whether an error is that of a write which may have been made or not.
func Unconfirmed(err error) bool { return errors.As(err, new(unconfirmed)) }

// TryAgain answers a request that has changed nothing and may succeed soon. Clients repeat it by
// themselves.
func TryAgain(err error) error {
	refusal := apierrors.NewServiceUnavailable(err.Error())
	refusal.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return refusal
}

// ErrPathNotFound is a 404 of the path, not of the object.
var ErrPathNotFound = apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "the server could not find the requested resource", 0, false)

// ErrNamespaceMismatch refuses an object with another namespace than the path.
var ErrNamespaceMismatch = apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")

// ErrMethodNotAllowed is upstream's 405.
var ErrMethodNotAllowed = apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "",
	"the server does not allow this method on the requested resource", 0, false)
