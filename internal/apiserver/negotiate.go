package apiserver

import (
	"maps"
	"mime"
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
	// as is empty for the object itself, "Table" or "PartialObjectMetadata"; lists of the latter are asked for by
	// "PartialObjectMetadataList".
	as            string
	asVersion     string
	pretty        bool
	stream        bool // watch
	includeObject metav1.IncludeObjectPolicy
}

func (f format) table() bool    { return f.as == "Table" }
func (f format) metadata() bool { return strings.HasPrefix(f.as, "PartialObjectMetadata") }

// contentType is the response's header.
func (f format) contentType() string {
	if f.stream && f.media == mediaProtobuf {
		return mediaProtobuf + ";stream=watch"
	}
	return f.media
}

var jsonFormat = format{media: mediaJSON}

// transforms are the forms that an object may be asked for in.
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

// negotiate picks the first of the accepted media types that the server has; stream is for a watch.
func negotiate(r *http.Request, transforms transforms, stream bool) (format, error) {
	accept := r.Header.Get("Accept")
	f := jsonFormat
	f.stream = stream
	if accept == "" || accept == mediaJSON || accept == "*/*" {
		f.pretty = pretty(r)
		return f, nil
	}
	best, found := 0.0, false
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := parseAccept(part)
		if err != nil {
			continue
		}
		quality := 1.0
		if q, ok := params["q"]; ok {
			if quality, err = strconv.ParseFloat(q, 64); err != nil || quality <= 0 {
				continue
			}
		}
		candidate, ok := accepted(media, params, transforms, stream)
		if ok && (!found || quality > best) {
			f, best, found = candidate, quality, true
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

// parseAccept reads one of the media types of an Accept header. Unlike elsewhere, their names and those of parameters are only known in small letters.
func parseAccept(part string) (media string, params map[string]string, err error) {
	_, params, err = mime.ParseMediaType(part)
	if err != nil {
		return "", nil, err
	}
	maps.DeleteFunc(params, func(name, _ string) bool { return !strings.Contains(part, name) })
	return mediaOf(part), params, nil
}

func accepted(media string, params map[string]string, transforms transforms, stream bool) (format, bool) {
	f := format{stream: stream}
	switch media {
	case mediaJSON, "*/*", "application/*":
		f.media = mediaJSON
	case mediaYAML:
		if stream {
			return f, false // documents in YAML can not follow each other
		}
		f.media = mediaYAML
	case mediaProtobuf:
		f.media = mediaProtobuf
	default:
		return f, false
	}
	if s := params["stream"]; s != "" && s != "watch" {
		return f, false
	}
	f.pretty = isTrue(params["pretty"])
	if as := params["as"]; as != "" {
		version := params["v"]
		if !transforms.has(as) || params["g"] != metav1.GroupName || version != "v1" && version != "v1beta1" {
			return f, false
		}
		if as == "Table" && f.media == mediaProtobuf {
			return f, false
		}
		f.as, f.asVersion = as, version
	}
	return f, true
}

// negotiateCustom is for custom resources: they have no protobuf form, but their tables and metadata have.
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
		if media, params, err := parseAccept(part); err != nil || media != mediaProtobuf || params["as"] != "" {
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

// offered tells whether one of the media types stands in an Accept header in so many words, whatever its parameters; upstream looks for that first.
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

// plainFormat is for an error, which has no other form than its own: what the client accepts, if that is possible, and JSON.
func plainFormat(r *http.Request) format {
	f, err := negotiate(r, transforms{}, false)
	if err != nil {
		return jsonFormat
	}
	return f
}

func notAcceptableText(text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotAcceptable,
		Reason: metav1.StatusReasonNotAcceptable, Message: text}}
}

// pretty: asked for, or by a client that people look at.
func pretty(r *http.Request) bool {
	if r.URL.RawQuery != "" {
		if v := r.URL.Query().Get("pretty"); v != "" {
			return isTrue(v)
		}
	}
	agent := r.Header.Get("User-Agent")
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}
