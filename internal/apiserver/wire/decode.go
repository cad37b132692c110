package wire

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/bounds"
)

const (
	MediaJSON     = "application/json"
	MediaYAML     = "application/yaml"
	MediaProtobuf = "application/vnd.kubernetes.protobuf"

	AllMedia = MediaJSON + ", " + MediaYAML + ", " + MediaProtobuf

	// MaxBody is the limit for a request's body in bytes, as upstream.
	MaxBody = 3 * 1024 * 1024
)

// ReadBody reads a body up to the limit.
func ReadBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	var data []byte
	var err error
	if n := r.ContentLength; n >= 0 && n <= MaxBody {
		data, err = readSized(r.Body, int(n))
	} else {
		data, err = io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	}
	// Either timer may be first.
	if err != nil && (errors.Is(r.Context().Err(), context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)) {
		return nil, StoreError(context.DeadlineExceeded)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read the request's body: %v", err))
	}
	if len(data) > MaxBody || r.ContentLength > MaxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", MaxBody))
	}
	return data, nil
}

// maxPrealloc is how many bytes are allocated on the word of Content-Length; the buffer of a longer
// body grows as it arrives.
const maxPrealloc = 64 << 10

// readSized reads a body of n bytes. A client that announces three megabytes and sends none does
// not make the server allocate them.
func readSized(body io.Reader, n int) ([]byte, error) {
	data := make([]byte, min(n, maxPrealloc))
	read, err := io.ReadFull(body, data)
	for err == nil && read < n {
		longer := make([]byte, min(n, 4*read))
		copy(longer, data)
		var more int
		more, err = io.ReadFull(body, longer[read:])
		if err == io.EOF { // some of it had arrived
			err = io.ErrUnexpectedEOF
		}
		data, read = longer, read+more
	}
	return data, err
}

// ContentType returns the media type of the body; JSON is the default.
func ContentType(r *http.Request) (string, error) {
	header := r.Header.Get("Content-Type")
	if header == "" || header == MediaJSON {
		return MediaJSON, nil
	}
	media, _, err := mime.ParseMediaType(header)
	if err != nil {
		return "", unsupportedMedia()
	}
	switch media {
	case MediaJSON, MediaYAML, MediaProtobuf:
		return media, nil
	}
	return "", unsupportedMedia()
}

func unsupportedMedia() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + AllMedia}}
}

// DecodeBody decodes a body of the kind want; the body may omit its kind. The object has an empty
// TypeMeta. validation is Strict, Warn or Ignore: unknown and duplicate fields become an error or
// go to warn.
func DecodeBody(media string, data []byte, want schema.GroupVersionKind, validation string, warn func(string)) (runtime.Object, error) {
	if media == MediaProtobuf {
		return decodeProtobuf(data, want)
	}
	raw := data
	data, strict, err := AsJSON(media, data)
	if err != nil {
		return nil, Unrecognized(want, raw, err)
	}
	obj, err := api.Scheme.New(want)
	if err != nil {
		return nil, err
	}
	if err := bounds.Document(data, obj); err != nil {
		return nil, CannotHandle(want, want, err)
	}
	problems, err := kjson.UnmarshalStrict(data, obj)
	got := obj.GetObjectKind().GroupVersionKind()
	// A problem may be a "Kind" in the wrong case, which counts.
	if err != nil || len(problems) > 0 {
		var syntax error
		if got, syntax = FindKind(data); syntax != nil {
			return nil, Unrecognized(want, raw, fmt.Errorf("couldn't get version/kind; json parse error: %w", syntax))
		}
	}
	if got.Version == "" {
		if err := InvalidAPIVersion(data); err != nil {
			return nil, Unrecognized(want, raw, err)
		}
		if got.Group != "" { // "v1/"
			return nil, CannotHandle(schema.GroupVersionKind{Kind: cmp.Or(got.Kind, want.Kind)}, want, runtime.NewMissingVersionErr(string(data)))
		}
	}
	if mismatch := matchBody(got, want); mismatch != nil {
		if err := checkOtherKind(data, withDefaultKind(got, want), want, strict, validation, warn); err != nil {
			return nil, err
		}
		return nil, mismatch
	}
	if err == nil {
		err = bounds.Raw(obj)
	}
	if err != nil {
		return nil, CannotHandle(want, want, err)
	}
	if err := ReportFields(append(strict, problems...), want, want, validation, warn); err != nil {
		return nil, err
	}
	ClearKind(obj)
	return obj, nil
}

// checkOtherKind reports errors in a body of another kind than want, before matchBody refuses the
// kind. It checks field names only in another version of the same kind.
func checkOtherKind(data []byte, got, want schema.GroupVersionKind, strict []error, validation string, warn func(string)) error {
	obj, err := api.Scheme.New(got)
	if err != nil {
		return nil // an unknown kind
	}
	if err := bounds.Document(data, obj); err != nil {
		return CannotHandle(got, want, err)
	}
	problems, err := kjson.UnmarshalStrict(data, obj)
	if err != nil {
		return CannotHandle(got, want, err)
	}
	if !convertible(got, want) {
		return nil
	}
	return ReportFields(append(strict, problems...), got, want, validation, warn)
}

// convertible reports whether both are versions of one kind; Events are one kind in two groups.
func convertible(got, want schema.GroupVersionKind) bool {
	return got.GroupKind() == want.GroupKind() || got.Kind == "Event" && want.Kind == "Event"
}

// CannotHandle is the answer to a body with an error in it.
func CannotHandle(got, want schema.GroupVersionKind, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, want.Kind, err))
}

// AsJSON converts a YAML body to JSON and returns the fields that it sets twice.
func AsJSON(media string, data []byte) (doc []byte, duplicates []error, err error) {
	if media != MediaYAML {
		return data, nil, nil
	}
	if err := bounds.Aliases(data); err != nil {
		return data, nil, err
	}
	if err := yaml.UnmarshalStrict(data, &map[string]any{}); err != nil {
		duplicates = append(duplicates, errors.New(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")))
	}
	doc, err = yaml.YAMLToJSON(data)
	if err != nil {
		return data, nil, err
	}
	return doc, duplicates, nil
}

// YAMLToJSON converts a YAML document to JSON.
func YAMLToJSON(data []byte) ([]byte, error) {
	if err := bounds.Aliases(data); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(data)
}

// ReportFields reports unknown and duplicate fields as the request wants them.
func ReportFields(problems []error, got, want schema.GroupVersionKind, validation string, warn func(string)) error {
	if len(problems) == 0 || validation == metav1.FieldValidationIgnore {
		return nil
	}
	if validation == metav1.FieldValidationStrict {
		return CannotHandle(got, want, runtime.NewStrictDecodingError(problems))
	}
	for _, p := range problems {
		for line := range strings.SplitSeq(strings.TrimPrefix(p.Error(), "yaml: unmarshal errors:\n"), "\n") {
			warn(strings.TrimSpace(line))
		}
	}
	return nil
}

// matchBody is MatchKind for request bodies, which may also be a v1beta1 Eviction.
func matchBody(got, want schema.GroupVersionKind) error {
	if isBetaEviction(got, want) {
		return nil
	}
	return MatchKind(got, want)
}

// isBetaEviction reports a v1beta1 Eviction. Both versions have the same fields, and tools from
// before Kubernetes 1.22 know only the older one.
func isBetaEviction(got, want schema.GroupVersionKind) bool {
	return got == policyv1beta1.SchemeGroupVersion.WithKind("Eviction") && want == policyv1.SchemeGroupVersion.WithKind("Eviction")
}

// MatchKind refuses a body of another kind.
func MatchKind(got, want schema.GroupVersionKind) error {
	got = withDefaultKind(got, want)
	switch {
	case got == want:
		return nil
	case !api.Scheme.Recognizes(got):
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, want.Kind, NotRegistered(got)))
	case convertible(got, want):
		return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(), want.GroupVersion()))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: converting (%s.%s) to (%s.%s): unknown conversion",
		got.Kind, got.Version, want.Kind, got.Version, got.Kind, InternalPackage(want.Group), want.Kind))
}

// withDefaultKind fills in the missing parts of a body's kind, as the serializers do.
func withDefaultKind(got, want schema.GroupVersionKind) schema.GroupVersionKind {
	if got.Kind == "" {
		got.Kind = want.Kind
	}
	if got.Version == "" {
		got.Group, got.Version = want.Group, want.Version
	}
	return got
}

// NotRegistered returns upstream's message, which names a line of its scheme.
func NotRegistered(gvk schema.GroupVersionKind) error {
	return fmt.Errorf("no kind %q is registered for version %q in scheme %q", gvk.Kind, gvk.GroupVersion(), "pkg/runtime/scheme.go:111")
}

// InternalPackage returns the Go package that upstream's message names for a group.
func InternalPackage(group string) string {
	if group == "" {
		return "core"
	}
	first, _, _ := strings.Cut(group, ".")
	return first
}

// FindKind reads a body's kind; an error means that the body is no JSON object.
func FindKind(data []byte) (schema.GroupVersionKind, error) {
	var t struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return schema.GroupVersionKind{}, err
	}
	return schema.FromAPIVersionAndKind(t.APIVersion, t.Kind), nil
}

// InvalidAPIVersion returns the error in a body's apiVersion, if there is one.
func InvalidAPIVersion(data []byte) error {
	var t struct {
		APIVersion string `json:"apiVersion"`
	}
	if json.Unmarshal(data, &t) != nil {
		return nil
	}
	_, err := schema.ParseGroupVersion(t.APIVersion)
	return err
}

func decodeProtobuf(data []byte, want schema.GroupVersionKind) (runtime.Object, error) {
	obj, err := decodeMessage(data, want)
	if err != nil {
		return nil, err
	}
	if err := bounds.Raw(obj); err != nil {
		return nil, CannotHandle(want, want, err)
	}
	return obj, nil
}

func decodeMessage(data []byte, want schema.GroupVersionKind) (runtime.Object, error) {
	if obj, ok := decodeFast(data, want); ok {
		return obj, nil
	}
	if err := checkMessageBounds(data, want); err != nil {
		return nil, CannotHandle(want, want, err)
	}
	obj, got, err := WireSerializer.Decode(data, &want, nil)
	if err != nil {
		if got != nil {
			if err := matchBody(*got, want); err != nil {
				return nil, err
			}
		}
		return nil, Unrecognized(want, data, err)
	}
	if err := matchBody(*got, want); err != nil {
		return nil, err
	}
	ClearKind(obj)
	return obj, nil
}

// decodeFast decodes a message of the kind want without copying it first. It reports false for
// any other message; the caller then finds the error.
func decodeFast(data []byte, want schema.GroupVersionKind) (runtime.Object, bool) {
	gvk, raw, err := OpenEnvelope(data)
	if err != nil || gvk != want && !isBetaEviction(gvk, want) {
		return nil, false
	}
	obj, err := api.Scheme.New(want)
	if err != nil || !bounds.Harmless(data) && bounds.Message(raw, obj) != nil {
		return nil, false
	}
	m, ok := obj.(protobufMessage)
	return obj, ok && m.Unmarshal(raw) == nil
}

// checkMessageBounds refuses a message that cannot be read in bounded time and space. It reads the
// message as the kind that it names, or as want, because it is decoded before its kind is checked.
func checkMessageBounds(data []byte, want schema.GroupVersionKind) error {
	if bounds.Harmless(data) {
		return nil
	}
	gvk, raw, err := OpenEnvelope(data)
	if err != nil {
		return nil // reported by the decoder
	}
	obj, err := api.Scheme.New(withDefaultKind(gvk, want))
	if err != nil {
		return nil // reported by the decoder
	}
	return bounds.Message(raw, obj)
}

// Unrecognized is upstream's answer to a body that cannot be read at all; it shows the body's
// beginning.
func Unrecognized(want schema.GroupVersionKind, data []byte, err error) error {
	const shown = 30
	summary := "<empty>"
	if len(data) > 0 {
		beginning, more := data, ""
		if len(data) > shown {
			beginning, more = data[:shown], " ..."
		}
		if summary = string(beginning) + more; data[0] != '{' {
			summary = hex.EncodeToString(beginning) + more
		}
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, err, summary))
}
