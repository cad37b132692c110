package apiserver

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
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"

	allMedia = mediaJSON + ", " + mediaYAML + ", " + mediaProtobuf

	// maxBody is the most bytes of a request's body, as upstream.
	maxBody = 3 * 1024 * 1024
)

// readBody reads a bounded body.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	var data []byte
	var err error
	if n := r.ContentLength; n >= 0 && n <= maxBody {
		data, err = readPromised(r.Body, int(n))
	} else {
		data, err = io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	}
	if err != nil && (errors.Is(r.Context().Err(), context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)) { // of the two clocks either may be first
		return nil, storeError(context.DeadlineExceeded)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read the request's body: %v", err))
	}
	if len(data) > maxBody || r.ContentLength > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	return data, nil
}

// maxPromised is how much of a body gets memory because its length is said; what is longer gets more as it comes.
const maxPromised = 64 << 10

// readPromised reads a body of n bytes. Who promises three megabytes and sends none has no three megabytes kept for it.
func readPromised(body io.Reader, n int) ([]byte, error) {
	data := make([]byte, min(n, maxPromised))
	read, err := io.ReadFull(body, data)
	for err == nil && read < n {
		longer := make([]byte, min(n, 4*read))
		copy(longer, data)
		var more int
		more, err = io.ReadFull(body, longer[read:])
		if err == io.EOF { // some of it was there
			err = io.ErrUnexpectedEOF
		}
		data, read = longer, read+more
	}
	return data, err
}

// contentType is the media type of the body; JSON when nothing is said.
func contentType(r *http.Request) (string, error) {
	header := r.Header.Get("Content-Type")
	if header == "" || header == mediaJSON {
		return mediaJSON, nil
	}
	media, _, err := mime.ParseMediaType(header)
	if err != nil {
		return "", unsupportedMedia()
	}
	switch media {
	case mediaJSON, mediaYAML, mediaProtobuf:
		return media, nil
	}
	return "", unsupportedMedia()
}

func unsupportedMedia() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + allMedia}}
}

// decodeBody decodes a body that is to be of the kind want, which may be left out in it. The object has an empty
// TypeMeta. validation is Strict, Warn or Ignore; what is unknown or double becomes an error or goes to warn.
func decodeBody(media string, data []byte, want schema.GroupVersionKind, validation string, warn func(string)) (runtime.Object, error) {
	if media == mediaProtobuf {
		return decodeProtobuf(data, want)
	}
	raw := data
	data, strict, err := asJSON(media, data)
	if err != nil {
		return nil, unrecognized(want, raw, err)
	}
	obj, err := api.Scheme.New(want)
	if err != nil {
		return nil, err
	}
	if err := bounds.Document(data, obj); err != nil {
		return nil, unreadable(want, want, err)
	}
	problems, err := kjson.UnmarshalStrict(data, obj)
	got := obj.GetObjectKind().GroupVersionKind()
	if err != nil || len(problems) > 0 { // among them may be a "Kind", which counts
		var syntax error
		if got, syntax = findKind(data); syntax != nil {
			return nil, unrecognized(want, raw, fmt.Errorf("couldn't get version/kind; json parse error: %w", syntax))
		}
	}
	if got.Version == "" {
		if err := brokenVersion(data); err != nil {
			return nil, unrecognized(want, raw, err)
		}
		if got.Group != "" { // "v1/"
			return nil, unreadable(schema.GroupVersionKind{Kind: cmp.Or(got.Kind, want.Kind)}, want, runtime.NewMissingVersionErr(string(data)))
		}
	}
	if mismatch := matchBody(got, want); mismatch != nil {
		if err := readAnother(data, completed(got, want), want, strict, validation, warn); err != nil {
			return nil, err
		}
		return nil, mismatch
	}
	if err == nil {
		err = bounds.Raw(obj)
	}
	if err != nil {
		return nil, unreadable(want, want, err)
	}
	if err := reportFields(append(strict, problems...), want, want, validation, warn); err != nil {
		return nil, err
	}
	clearKind(obj)
	return obj, nil
}

// readAnother tells what is wrong in a body of another kind than the one that is wanted, before anybody says that it is another: its fields
// only when it is another version of the same.
func readAnother(data []byte, got, want schema.GroupVersionKind, strict []error, validation string, warn func(string)) error {
	obj, err := api.Scheme.New(got)
	if err != nil {
		return nil // nobody knows that kind
	}
	if err := bounds.Document(data, obj); err != nil {
		return unreadable(got, want, err)
	}
	problems, err := kjson.UnmarshalStrict(data, obj)
	if err != nil {
		return unreadable(got, want, err)
	}
	if !convertible(got, want) {
		return nil
	}
	return reportFields(append(strict, problems...), got, want, validation, warn)
}

// convertible: versions of one kind; Events are one kind in two groups.
func convertible(got, want schema.GroupVersionKind) bool {
	return got.GroupKind() == want.GroupKind() || got.Kind == "Event" && want.Kind == "Event"
}

// unreadable is the answer to a body that has something wrong in it.
func unreadable(got, want schema.GroupVersionKind, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, want.Kind, err))
}

// asJSON gives a YAML body as JSON, with what is double in it.
func asJSON(media string, data []byte) (doc []byte, duplicates []error, err error) {
	if media != mediaYAML {
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

// yamlToJSON gives a YAML document as JSON.
func yamlToJSON(data []byte) ([]byte, error) {
	if err := bounds.Aliases(data); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(data)
}

// reportFields tells of unknown and duplicate fields as the request asked.
func reportFields(problems []error, got, want schema.GroupVersionKind, validation string, warn func(string)) error {
	if len(problems) == 0 || validation == metav1.FieldValidationIgnore {
		return nil
	}
	if validation == metav1.FieldValidationStrict {
		return unreadable(got, want, runtime.NewStrictDecodingError(problems))
	}
	for _, p := range problems {
		for line := range strings.SplitSeq(strings.TrimPrefix(p.Error(), "yaml: unmarshal errors:\n"), "\n") {
			warn(strings.TrimSpace(line))
		}
	}
	return nil
}

// matchBody is matchKind of a request's body, which may be an older Eviction.
func matchBody(got, want schema.GroupVersionKind) error {
	if olderEviction(got, want) {
		return nil
	}
	return matchKind(got, want)
}

// olderEviction: evictions are posted in both versions of their group, which have the same fields; tools from before Kubernetes 1.22 know
// only the older one.
func olderEviction(got, want schema.GroupVersionKind) bool {
	return got == policyv1beta1.SchemeGroupVersion.WithKind("Eviction") && want == policyv1.SchemeGroupVersion.WithKind("Eviction")
}

// matchKind refuses a body that says it is something else.
func matchKind(got, want schema.GroupVersionKind) error {
	got = completed(got, want)
	switch {
	case got == want:
		return nil
	case !api.Scheme.Recognizes(got):
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, want.Kind, notRegistered(got)))
	case convertible(got, want):
		return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(), want.GroupVersion()))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: converting (%s.%s) to (%s.%s): unknown conversion",
		got.Kind, got.Version, want.Kind, got.Version, got.Kind, internalPackage(want.Group), want.Kind))
}

// completed fills in what a body does not say of its kind, as the serializers do.
func completed(got, want schema.GroupVersionKind) schema.GroupVersionKind {
	if got.Kind == "" {
		got.Kind = want.Kind
	}
	if got.Version == "" {
		got.Group, got.Version = want.Group, want.Version
	}
	return got
}

// notRegistered is upstream's wording, which names the place of its scheme.
func notRegistered(gvk schema.GroupVersionKind) error {
	return fmt.Errorf("no kind %q is registered for version %q in scheme %q", gvk.Kind, gvk.GroupVersion(), "pkg/runtime/scheme.go:111")
}

// internalPackage is the Go package that upstream's message names for a group.
func internalPackage(group string) string {
	if group == "" {
		return "core"
	}
	first, _, _ := strings.Cut(group, ".")
	return first
}

// findKind reads the kind that a body says it is; an error means that it is no JSON object.
func findKind(data []byte) (schema.GroupVersionKind, error) {
	var t struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return schema.GroupVersionKind{}, err
	}
	return schema.FromAPIVersionAndKind(t.APIVersion, t.Kind), nil
}

// brokenVersion is what is wrong with an apiVersion that is there and can't be read.
func brokenVersion(data []byte) error {
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
		return nil, unreadable(want, want, err)
	}
	return obj, nil
}

func decodeMessage(data []byte, want schema.GroupVersionKind) (runtime.Object, error) {
	if obj, ok := decodeWanted(data, want); ok {
		return obj, nil
	}
	if err := boundedMessage(data, want); err != nil {
		return nil, unreadable(want, want, err)
	}
	obj, got, err := wireSerializer.Decode(data, &want, nil)
	if err != nil {
		if got != nil {
			if err := matchBody(*got, want); err != nil {
				return nil, err
			}
		}
		return nil, unrecognized(want, data, err)
	}
	if err := matchBody(*got, want); err != nil {
		return nil, err
	}
	clearKind(obj)
	return obj, nil
}

// decodeWanted decodes a message that is of the kind want and has nothing wrong with it, without copying it first; what is wrong with others is told by who
// looks at them whole.
func decodeWanted(data []byte, want schema.GroupVersionKind) (runtime.Object, bool) {
	gvk, raw, err := openEnvelope(data)
	if err != nil || gvk != want && !olderEviction(gvk, want) {
		return nil, false
	}
	obj, err := api.Scheme.New(want)
	if err != nil || !bounds.Harmless(data) && bounds.Message(raw, obj) != nil {
		return nil, false
	}
	m, ok := obj.(protobufMessage)
	return obj, ok && m.Unmarshal(raw) == nil
}

// boundedMessage tells of what can not be read in bounded time and space in a message, of whatever kind it will be read as: what it says it is, or want
// where it does not say. It is read before its kind is looked at.
func boundedMessage(data []byte, want schema.GroupVersionKind) error {
	if bounds.Harmless(data) {
		return nil
	}
	gvk, raw, err := openEnvelope(data)
	if err != nil {
		return nil // told by whoever decodes it
	}
	obj, err := api.Scheme.New(completed(gvk, want))
	if err != nil {
		return nil // likewise
	}
	return bounds.Message(raw, obj)
}

// unrecognized is upstream's answer to a body that can not be read at all; it shows the body's beginning.
func unrecognized(want schema.GroupVersionKind, data []byte, err error) error {
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
