package zpages

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	group     = "config.k8s.io"
	newest    = "v1beta1"
	old       = "v1alpha1"
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
	mediaText = "text/plain"
	textType  = "text/plain; charset=utf-8"
	media     = mediaJSON + ", " + mediaYAML + ", " + mediaText
	warning   = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n"
)

// page is one answer: the object for clients that request its kind, and the text for people.
type page struct {
	object any
	text   []byte
}

// format is the answer's format according to the Accept header. version is empty for plain text.
type format struct{ media, version string }

// accepted returns the best format that an Accept header allows.
func accepted(accept, kind string) (best format, ok bool) {
	if accept == "" {
		return format{media: mediaText}, true
	}
	highest := 0.0
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		quality := 1.0
		if q, given := params["q"]; given {
			if quality, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		candidate := format{media, params["v"]}
		switch media {
		case mediaText, "*/*":
			candidate = format{media: mediaText}
		case mediaJSON, mediaYAML:
			if params["as"] != kind || params["g"] != group || params["v"] != newest && params["v"] != old {
				continue
			}
		default:
			continue
		}
		if quality > highest {
			best, highest, ok = candidate, quality, true
		}
	}
	return best, ok
}

// serve answers any method with the page that show returns for the requested version.
func serve(kind string, show func(version string) page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, ok := accepted(r.Header.Get("Accept"), kind)
		if !ok {
			refuse(w)
			return
		}
		p := show(f.version)
		body, contentType, err := p.text, textType, error(nil)
		if f.version != "" {
			contentType = f.media + ";g=" + group + ";v=" + f.version + ";as=" + kind
			if body, err = json.MarshalIndent(p.object, "", "  "); err == nil && f.media == mediaYAML {
				body, err = yaml.JSONToYAML(body)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if f.version == old {
			w.Header().Add("Warning", `299 - "This version of the `+strings.ToLower(kind)+` endpoint is deprecated. Please use a newer version."`)
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body) // the client may have disconnected
	}
}

// refuse lists the supported media types.
func refuse(w http.ResponseWriter) {
	body, err := json.MarshalIndent(&metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusNotAcceptable,
		Reason: metav1.StatusReasonNotAcceptable, Message: "only the following media types are accepted: " + media,
	}, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", mediaJSON)
	w.WriteHeader(http.StatusNotAcceptable)
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}
