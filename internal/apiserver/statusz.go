package apiserver

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	knarr "github.com/knarr-project/knarr/internal/version"
)

// statusz is what /statusz tells of the process (KEP-4827), in the group config.k8s.io.
type statusz struct {
	metav1.TypeMeta  `json:",inline"`
	Metadata         map[string]string `json:"metadata"`
	StartTime        metav1.Time       `json:"startTime"`
	UptimeSeconds    int64             `json:"uptimeSeconds"`
	GoVersion        string            `json:"goVersion"`
	BinaryVersion    string            `json:"binaryVersion"`
	EmulationVersion string            `json:"emulationVersion"`
	Paths            []string          `json:"paths"`
}

const (
	statuszGroup   = "config.k8s.io"
	statuszNewest  = "v1beta1"
	statuszOld     = "v1alpha1"
	statuszMedia   = mediaJSON + ", " + mediaYAML + ", " + mediaText
	statuszText    = "text/plain; charset=utf-8"
	statuszWarning = "This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only."
	mediaText      = "text/plain"
)

// statuszFormat is what an Accept header asks for; version is empty for the text that people read.
type statuszFormat struct{ media, version string }

func statuszAccepted(accept string) (best statuszFormat, ok bool) {
	if accept == "" {
		return statuszFormat{media: mediaText}, true
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
		candidate := statuszFormat{media, params["v"]}
		switch media {
		case mediaText, "*/*":
			candidate = statuszFormat{media: mediaText}
		case mediaJSON, mediaYAML:
			if params["as"] != "Statusz" || params["g"] != statuszGroup || params["v"] != statuszNewest && params["v"] != statuszOld {
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

// serveStatusz tells, whatever the method, since when the process runs, of which version it is, and where more is to be learnt.
func serveStatusz(began time.Time, now func() time.Time) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, ok := statuszAccepted(r.Header.Get("Accept"))
		if !ok {
			respondError(w, jsonFormat, notAcceptableText("only the following media types are accepted: "+statuszMedia))
			return
		}
		status := statusz{
			TypeMeta: metav1.TypeMeta{Kind: "Statusz", APIVersion: statuszGroup + "/" + f.version}, Metadata: map[string]string{"name": "apiserver"},
			StartTime: metav1.NewTime(began.UTC()), UptimeSeconds: int64(now().Sub(began).Seconds()), GoVersion: runtime.Version(),
			BinaryVersion: strings.TrimPrefix(knarr.Kubernetes, "v"), EmulationVersion: knarr.Major + "." + knarr.Minor,
			Paths: []string{"/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"},
		}
		body, err := status.encode(f)
		if err != nil {
			respondError(w, jsonFormat, err)
			return
		}
		media := statuszText
		if f.version != "" {
			media = f.media + ";g=" + statuszGroup + ";v=" + f.version + ";as=Statusz"
		}
		if f.version == statuszOld {
			w.Header().Add("Warning", `299 - "This version of the statusz endpoint is deprecated. Please use a newer version."`)
		}
		w.Header().Set("Content-Type", media)
		_, _ = w.Write(body) // the client may be gone
	}
}

func (s *statusz) encode(f statuszFormat) ([]byte, error) {
	switch f.media {
	case mediaJSON:
		return json.MarshalIndent(s, "", "  ")
	case mediaYAML:
		return yaml.Marshal(s)
	}
	up := s.UptimeSeconds
	return fmt.Appendf(nil, "\napiserver statusz\nWarning: %s\n\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nEmulation version: %s\nPaths: %s\n",
		statuszWarning, s.StartTime.Format(time.UnixDate), up/3600, up/60%60, up%60, s.GoVersion, s.BinaryVersion, s.EmulationVersion, strings.Join(s.Paths, " ")), nil
}
