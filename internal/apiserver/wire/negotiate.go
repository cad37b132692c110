package wire

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Format is the form of a response that a client accepts.
type Format struct {
	Media string // MediaJSON, MediaYAML or MediaProtobuf
	// As is empty for the object itself, else "Table", "PartialObjectMetadata" or, for a list of
	// the latter, "PartialObjectMetadataList".
	As            string
	AsVersion     string
	Pretty        bool
	Stream        bool // watch
	IncludeObject metav1.IncludeObjectPolicy
	// fallback is set if the client accepts none of the server's forms. As upstream, the audit log
	// then has only the code.
	fallback bool
}

// Table reports whether the client wants a Table.
func (f Format) Table() bool { return f.As == "Table" }

// Metadata reports whether the client wants metadata only.
func (f Format) Metadata() bool { return strings.HasPrefix(f.As, "PartialObjectMetadata") }

// ContentType returns the Content-Type header.
func (f Format) ContentType() string {
	if f.Stream && f.Media == MediaProtobuf {
		return MediaProtobuf + ";stream=watch"
	}
	return f.Media
}

// JSONFormat is plain JSON.
var JSONFormat = Format{Media: MediaJSON}

// AllowedTransforms are the forms in which an object can be requested.
type AllowedTransforms struct {
	Metadata, Table bool
}

func (t AllowedTransforms) has(as string) bool {
	switch as {
	case "Table":
		return t.Table
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return t.Metadata
	}
	return false
}

// Negotiate picks the best of the accepted media types that the server has; stream is set for a
// watch.
func Negotiate(r *http.Request, transforms AllowedTransforms, stream bool) (Format, error) {
	accept := r.Header.Get("Accept")
	f := JSONFormat
	f.Stream = stream
	if accept == "" || accept == MediaJSON || accept == "*/*" {
		f.Pretty = pretty(r)
		return f, nil
	}
	var best acceptedMedia
	found := false
	for part := range strings.SplitSeq(accept, ",") {
		a := parseAccept(part)
		if candidate, ok := accepted(a, transforms, stream); ok && (!found || a.preferredTo(best)) {
			f, best, found = candidate, a, true
		}
	}
	if !found && stream {
		return JSONFormat, NotAcceptableText("only the following media types are accepted: " + StreamMedia)
	}
	if !found {
		return JSONFormat, NotAcceptableText("only the following media types are accepted: " + AllMedia)
	}
	f.Pretty = f.Media == MediaJSON && (f.Pretty || pretty(r))
	if f.Table() && r.URL.RawQuery != "" {
		f.IncludeObject = metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))
	}
	return f, nil
}

// acceptedMedia is one of the media types of an Accept header.
type acceptedMedia struct {
	media   string
	params  map[string]string
	quality float64
}

// parseAccept parses as upstream does: names and values are case-sensitive and keep their quotes,
// and a malformed parameter is ignored.
func parseAccept(part string) acceptedMedia {
	a := acceptedMedia{media: MediaOf(part), params: map[string]string{}, quality: 1}
	_, params, _ := strings.Cut(part, ";")
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if value == "" || strings.Contains(value, "=") {
			continue
		}
		a.params[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	if q, ok := a.params["q"]; ok {
		a.quality, _ = strconv.ParseFloat(q, 64) // an invalid number is 0, which comes last
	}
	return a
}

// preferredTo reports whether a is preferred to b, which precedes it in the header.
func (a acceptedMedia) preferredTo(b acceptedMedia) bool {
	if a.quality != b.quality {
		return a.quality > b.quality
	}
	return strings.HasSuffix(b.media, "/*") && !strings.HasSuffix(a.media, "/*")
}

func accepted(a acceptedMedia, transforms AllowedTransforms, stream bool) (Format, bool) {
	f := Format{Stream: stream}
	switch a.media {
	case MediaJSON, "*/*", "application/*":
		f.Media = MediaJSON
	case MediaYAML:
		if stream {
			return f, false // YAML documents cannot follow each other in a stream
		}
		f.Media = MediaYAML
	case MediaProtobuf:
		f.Media = MediaProtobuf
	default:
		return f, false
	}
	if s := a.params["stream"]; s != "" && s != "watch" {
		return f, false
	}
	f.Pretty = IsTrue(a.params["pretty"])
	// A group or a version without "as" is not an accepted form.
	if as, group, version := a.params["as"], a.params["g"], a.params["v"]; as != "" || group != "" || version != "" {
		if !transforms.has(as) || group != metav1.GroupName || version != "v1" && version != "v1beta1" {
			return f, false
		}
		if as == "Table" && f.Media == MediaProtobuf {
			return f, false
		}
		f.As, f.AsVersion = as, version
	}
	return f, true
}

// NegotiateCustom negotiates for custom resources. They have no protobuf form, but their tables and
// metadata do.
func NegotiateCustom(r *http.Request, may AllowedTransforms, stream bool) (Format, error) {
	f, err := Negotiate(r, may, stream)
	if err != nil && stream {
		return JSONFormat, err
	}
	if err != nil {
		return JSONFormat, NotAcceptableText("only the following media types are accepted: " + AllMedia)
	}
	if f.Media != MediaProtobuf || f.As != "" {
		return f, nil
	}
	var others []string
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		if a := parseAccept(part); a.media != MediaProtobuf || a.params["as"] != "" {
			others = append(others, part)
		}
	}
	if len(others) == 0 {
		return Format{Media: MediaProtobuf}, NotAcceptableText("only the following media types are accepted: " + AllMedia)
	}
	narrowed := r.Clone(r.Context())
	narrowed.Header.Set("Accept", strings.Join(others, ","))
	if f, err = Negotiate(narrowed, may, stream); err != nil {
		return JSONFormat, NotAcceptableText("only the following media types are accepted: " + AllMedia)
	}
	return f, nil
}

// StreamMedia are the media types of watches.
const StreamMedia = MediaJSON + ";stream=watch, " + MediaProtobuf + ";stream=watch"

// AcceptsAny reports whether an Accept header names one of the media types literally, whatever its
// parameters. Upstream checks this first.
func AcceptsAny(accept string, media ...string) bool {
	if accept == "" {
		return true
	}
	for part := range strings.SplitSeq(accept, ",") {
		if asked := MediaOf(part); asked == "*/*" || slices.Contains(media, asked) {
			return true
		}
	}
	return false
}

// NotAcceptableOf is the first of upstream's two forms of 406.
func NotAcceptableOf(media string) error {
	return apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schema.GroupResource{}, "", "406: Not Acceptable\n\nAvailable representations: "+media, 0, false)
}

// ErrorFormat is the format of an error, which cannot be transformed: what the client accepts, else
// JSON.
func ErrorFormat(r *http.Request) Format {
	f, err := Negotiate(r, AllowedTransforms{}, false)
	if err != nil {
		return Format{Media: MediaJSON, Pretty: true, fallback: true}
	}
	return f
}

// NotAcceptableText returns a 406 with the given text.
func NotAcceptableText(text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotAcceptable,
		Reason: metav1.StatusReasonNotAcceptable, Message: text}}
}

// pretty reports whether to indent JSON: on request, or for a client that people read directly.
func pretty(r *http.Request) bool {
	if r.URL.RawQuery != "" {
		if v := r.URL.Query().Get("pretty"); v != "" {
			return IsTrue(v)
		}
	}
	agent := r.Header.Get("User-Agent")
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// MediaOf returns a Content-Type without its parameters.
func MediaOf(header string) string {
	media, _, _ := strings.Cut(header, ";")
	return strings.TrimSpace(media)
}
