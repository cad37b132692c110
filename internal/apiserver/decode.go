package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/api"
)

const (
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"

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
		data = make([]byte, n)
		_, err = io.ReadFull(r.Body, data)
	} else {
		data, err = io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read the request's body: %v", err))
	}
	if len(data) > maxBody || r.ContentLength > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	return data, nil
}

// contentType is the media type of the body; JSON when nothing is said.
func contentType(r *http.Request) (string, error) {
	header := r.Header.Get("Content-Type")
	if header == "" || header == mediaJSON {
		return mediaJSON, nil
	}
	media, _, err := mime.ParseMediaType(header)
	if err != nil {
		return "", unsupportedMedia(header)
	}
	switch media {
	case mediaJSON, mediaYAML, mediaProtobuf:
		return media, nil
	}
	return "", unsupportedMedia(media)
}

func unsupportedMedia(got string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "", fmt.Sprintf(
		"the body of the request was in an unknown format - accepted media types include: %s", strings.Join([]string{mediaJSON, mediaYAML, mediaProtobuf}, ", ")), 0, false)
}

// decodeBody decodes a body that is to be of the kind want, which may be left out in it. The object has an empty
// TypeMeta. validation is Strict, Warn or Ignore; what is unknown or double becomes an error or goes to warn.
func decodeBody(media string, data []byte, want schema.GroupVersionKind, validation string, warn func(string)) (runtime.Object, error) {
	if media == mediaProtobuf {
		return decodeProtobuf(data, want)
	}
	var strict []error
	if media == mediaYAML {
		if err := yaml.UnmarshalStrict(data, &map[string]any{}); err != nil {
			strict = append(strict, err)
		}
		converted, err := yaml.YAMLToJSON(data)
		if err != nil {
			return nil, unrecognized(want, data, err)
		}
		data = converted
	}
	obj, err := api.Scheme.New(want)
	if err != nil {
		return nil, err
	}
	problems, err := kjson.UnmarshalStrict(data, obj)
	got := obj.GetObjectKind().GroupVersionKind()
	if got.Kind == "" && err != nil {
		got = findKind(data)
	}
	if err := matchKind(got, want); err != nil {
		return nil, err
	}
	if err != nil {
		if got.Kind == "" {
			return nil, unrecognized(want, data, err)
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", want.Kind, want.Version, want.Kind, err))
	}
	if err := reportFields(append(strict, problems...), want, validation, warn); err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj, nil
}

// reportFields tells of unknown and duplicate fields as the request asked.
func reportFields(problems []error, want schema.GroupVersionKind, validation string, warn func(string)) error {
	if len(problems) == 0 || validation == metav1.FieldValidationIgnore {
		return nil
	}
	if validation == metav1.FieldValidationStrict {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", want.Kind, want.Version, want.Kind, runtime.NewStrictDecodingError(problems)))
	}
	for _, p := range problems {
		warn(p.Error())
	}
	return nil
}

// matchKind refuses a body that says it is something else.
func matchKind(got, want schema.GroupVersionKind) error {
	if got.Kind != "" && got.Kind != want.Kind {
		if gv := got.GroupVersion(); gv.Version != "" && gv != want.GroupVersion() {
			return versionMismatch(gv, want.GroupVersion())
		}
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: converting (%s.%s) to (%s.%s): unknown conversion",
			got.Kind, got.Version, want.Kind, got.Version, got.Kind, want.Version, want.Kind))
	}
	if gv := got.GroupVersion(); gv.Version != "" && gv != want.GroupVersion() {
		return versionMismatch(gv, want.GroupVersion())
	}
	return nil
}

func versionMismatch(got, want schema.GroupVersion) error {
	return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", got, want))
}

func findKind(data []byte) schema.GroupVersionKind {
	var t metav1.TypeMeta
	if err := json.Unmarshal(data, &t); err != nil {
		return schema.GroupVersionKind{}
	}
	return t.GroupVersionKind()
}

func decodeProtobuf(data []byte, want schema.GroupVersionKind) (runtime.Object, error) {
	obj, got, err := wireSerializer.Decode(data, &want, nil)
	if err != nil {
		if got != nil {
			if err := matchKind(*got, want); err != nil {
				return nil, err
			}
		}
		return nil, unrecognized(want, data, err)
	}
	if err := matchKind(*got, want); err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj, nil
}

// unrecognized is upstream's answer to a body that can not be read at all; it shows the body's beginning.
func unrecognized(want schema.GroupVersionKind, data []byte, err error) error {
	const shown = 30
	var summary string
	binary := false
	for _, b := range data {
		if b == 0 {
			binary = true
			break
		}
	}
	switch {
	case len(data) == 0:
		summary = "<empty>"
	case binary:
		summary = fmt.Sprintf("%#v", firstBytes(data, shown))
	case len(data) > shown:
		summary = fmt.Sprintf("%s ...", data[:shown])
	default:
		summary = string(data)
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, err, summary))
}

func firstBytes(data []byte, n int) []byte {
	if len(data) > n {
		return data[:n]
	}
	return data
}

// errNoBody: the verb needs a body.
var errNoBody = errors.New("the request has no body")
