package apiserver

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// format is the form of a response that a client accepts.
type format struct {
	media string // mediaJSON, mediaYAML or mediaProtobuf
	// as is empty for the object itself, else "Table", "PartialObjectMetadata" or, for a list of
	// the latter, "PartialObjectMetadataList".
	as            string
	asVersion     string
	pretty        bool
	stream        bool // watch
	includeObject metav1.IncludeObjectPolicy
	// forced is set if the client accepts none of the server's forms. As upstream, the audit log
	// then has only the code.
	forced bool
}

func (f format) table() bool    { return f.as == "Table" }
func (f format) metadata() bool { return strings.HasPrefix(f.as, "PartialObjectMetadata") }

// contentType returns the Content-Type header.
func (f format) contentType() string {
	if f.stream && f.media == mediaProtobuf {
		return mediaProtobuf + ";stream=watch"
	}
	return f.media
}

var jsonFormat = format{media: mediaJSON}

// transforms are the forms in which an object can be requested.
type transforms struct {
	metadata, table bool
}

func (t transforms) has(as string) bool {
	switch as {
	case "Table":
		return t.table
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return t.metadata
	}
	return false
}

// negotiate picks the best of the accepted media types that the server has; stream is set for a
// watch.
func negotiate(r *http.Request, transforms transforms, stream bool) (format, error) {
	accept := r.Header.Get("Accept")
	f := jsonFormat
	f.stream = stream
	if accept == "" || accept == mediaJSON || accept == "*/*" {
		f.pretty = pretty(r)
		return f, nil
	}
	var best wanted
	found := false
	for part := range strings.SplitSeq(accept, ",") {
		a := parseAccept(part)
		if candidate, ok := accepted(a, transforms, stream); ok && (!found || a.before(best)) {
			f, best, found = candidate, a, true
		}
	}
	if !found && stream {
		return jsonFormat, notAcceptableText("only the following media types are accepted: " + streamMedia)
	}
	if !found {
		return jsonFormat, notAcceptableText("only the following media types are accepted: " + allMedia)
	}
	f.pretty = f.media == mediaJSON && (f.pretty || pretty(r))
	if f.table() && r.URL.RawQuery != "" {
		f.includeObject = metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))
	}
	return f, nil
}

// wanted is one of the media types of an Accept header.
type wanted struct {
	media   string
	params  map[string]string
	quality float64
}

// parseAccept parses as upstream does: names and values are case-sensitive and keep their quotes,
// and a malformed parameter is ignored.
func parseAccept(part string) wanted {
	a := wanted{media: mediaOf(part), params: map[string]string{}, quality: 1}
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

// before reports whether a is preferred to b, which precedes it in the header.
func (a wanted) before(b wanted) bool {
	if a.quality != b.quality {
		return a.quality > b.quality
	}
	return strings.HasSuffix(b.media, "/*") && !strings.HasSuffix(a.media, "/*")
}

func accepted(a wanted, transforms transforms, stream bool) (format, bool) {
	f := format{stream: stream}
	switch a.media {
	case mediaJSON, "*/*", "application/*":
		f.media = mediaJSON
	case mediaYAML:
		if stream {
			return f, false // YAML documents cannot follow each other in a stream
		}
		f.media = mediaYAML
	case mediaProtobuf:
		f.media = mediaProtobuf
	default:
		return f, false
	}
	if s := a.params["stream"]; s != "" && s != "watch" {
		return f, false
	}
	f.pretty = isTrue(a.params["pretty"])
	// A group or a version without "as" is not an accepted form.
	if as, group, version := a.params["as"], a.params["g"], a.params["v"]; as != "" || group != "" || version != "" {
		if !transforms.has(as) || group != metav1.GroupName || version != "v1" && version != "v1beta1" {
			return f, false
		}
		if as == "Table" && f.media == mediaProtobuf {
			return f, false
		}
		f.as, f.asVersion = as, version
	}
	return f, true
}

// negotiateCustom negotiates for custom resources. They have no protobuf form, but their tables and
// metadata do.
func negotiateCustom(r *http.Request, may transforms, stream bool) (format, error) {
	f, err := negotiate(r, may, stream)
	if err != nil && stream {
		return jsonFormat, err
	}
	if err != nil {
		return jsonFormat, notAcceptableText("only the following media types are accepted: " + allMedia)
	}
	if f.media != mediaProtobuf || f.as != "" {
		return f, nil
	}
	var others []string
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		if a := parseAccept(part); a.media != mediaProtobuf || a.params["as"] != "" {
			others = append(others, part)
		}
	}
	if len(others) == 0 {
		return format{media: mediaProtobuf}, notAcceptableText("only the following media types are accepted: " + allMedia)
	}
	narrowed := r.Clone(r.Context())
	narrowed.Header.Set("Accept", strings.Join(others, ","))
	if f, err = negotiate(narrowed, may, stream); err != nil {
		return jsonFormat, notAcceptableText("only the following media types are accepted: " + allMedia)
	}
	return f, nil
}

const streamMedia = mediaJSON + ";stream=watch, " + mediaProtobuf + ";stream=watch"

// offered reports whether an Accept header names one of the media types literally, whatever its
// parameters. Upstream checks this first.
func offered(accept string, media ...string) bool {
	if accept == "" {
		return true
	}
	for part := range strings.SplitSeq(accept, ",") {
		if asked := mediaOf(part); asked == "*/*" || slices.Contains(media, asked) {
			return true
		}
	}
	return false
}

// notOffered is the first of upstream's two forms of 406.
func notOffered(media string) error {
	return apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schema.GroupResource{}, "", "406: Not Acceptable\n\nAvailable representations: "+media, 0, false)
}

// plainFormat is the format of an error, which cannot be transformed: what the client accepts, else
// JSON.
func plainFormat(r *http.Request) format {
	f, err := negotiate(r, transforms{}, false)
	if err != nil {
		return format{media: mediaJSON, pretty: true, forced: true}
	}
	return f
}

func notAcceptableText(text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotAcceptable,
		Reason: metav1.StatusReasonNotAcceptable, Message: text}}
}

// pretty reports whether to indent JSON: on request, or for a client that people read directly.
func pretty(r *http.Request) bool {
	if r.URL.RawQuery != "" {
		if v := r.URL.Query().Get("pretty"); v != "" {
			return isTrue(v)
		}
	}
	agent := r.Header.Get("User-Agent")
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}
