package refusal

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	netutil "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/check"
)

const (
	// Variable is the environment variable that turns explanations off, by the value "off".
	Variable = "KNARR_EXPLAIN"
	// maxAnswer is the number of bytes of an error that are read.
	maxAnswer = 1 << 20
	// maxSent is the number of bytes of a request, or of standard input, that are kept.
	maxSent = 3 << 20
	// maxRefusals is the number of objects whose refusals are kept.
	maxRefusals = 100
)

// commands are kubectl's commands that write the objects of files.
var commands = []string{"apply", "create", "replace", "patch", "diff"}

// Recorder keeps the refusals of one kubectl command.
type Recorder struct {
	mu       sync.Mutex
	refusals []check.Refusal
	config   *rest.Config
	stdin    *capture
}

// New returns a recorder for a command of kubectl, or nil if it writes no files or explanations are
// off. Methods of a nil recorder do nothing.
func New(command string, args []string) *Recorder {
	if os.Getenv(Variable) == "off" || !slices.Contains(commands, command) {
		return nil
	}
	r := &Recorder{}
	for i, arg := range args {
		if arg == "-f-" || arg == "--filename=-" || arg == "-" && i > 0 && (args[i-1] == "-f" || args[i-1] == "--filename") {
			r.stdin = captureStdin()
			break
		}
	}
	return r
}

// Wrap records what passes the clients of a configuration.
func (r *Recorder) Wrap(c *rest.Config) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.config = rest.CopyConfig(c)
	r.mu.Unlock()
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{r, next} })
}

type transport struct {
	recorder *Recorder
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPost && request.Method != http.MethodPut && request.Method != http.MethodPatch {
		return t.next.RoundTrip(request)
	}
	var sent []byte
	if request.GetBody != nil {
		if body, err := request.GetBody(); err == nil {
			sent, _ = io.ReadAll(io.LimitReader(body, maxSent)) // a part is as good as nothing
			body.Close()
		}
	}
	response, err := t.next.RoundTrip(request)
	if err == nil {
		t.recorder.record(request, response, sent)
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// record keeps an error or warnings. A later answer about the same object replaces a conflict,
// since kubectl tries again after it.
func (r *Recorder) record(request *http.Request, response *http.Response, sent []byte) {
	refusal, ok := target(request.URL)
	if !ok {
		return
	}
	if refusal.Name == "" {
		var object metav1.PartialObjectMetadata
		if json.Unmarshal(sent, &object) == nil {
			refusal.Name = object.Name
		}
	}
	refusal.Sent = sent
	warnings, _ := netutil.ParseWarningHeaders(response.Header["Warning"])
	for _, w := range warnings {
		refusal.Warnings = append(refusal.Warnings, w.Text)
	}
	if response.StatusCode >= http.StatusBadRequest {
		data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		response.Body = rejoined{io.MultiReader(bytes.NewReader(data), response.Body), response.Body}
		var status metav1.Status
		if err == nil && json.Unmarshal(data, &status) == nil && status.Status == metav1.StatusFailure {
			refusal.Status = &status
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusals = slices.DeleteFunc(r.refusals, func(before check.Refusal) bool {
		return before.Status != nil && before.Status.Reason == metav1.StatusReasonConflict && before.Resource == refusal.Resource && before.Namespace == refusal.Namespace && before.Name == refusal.Name
	})
	if (refusal.Status != nil || len(refusal.Warnings) > 0) && len(r.refusals) < maxRefusals {
		r.refusals = append(r.refusals, refusal)
	}
}

// rejoined is a body of which the beginning has been read.
type rejoined struct {
	io.Reader
	io.Closer
}

// target returns the object that a URL names; false for other requests.
func target(u *url.URL) (check.Refusal, bool) {
	_, path, ok := strings.Cut(u.Path, "/api")
	if !ok {
		return check.Refusal{}, false
	}
	var gvr schema.GroupVersionResource
	var parts []string
	if rest, named := strings.CutPrefix(path, "s/"); named {
		if parts = strings.Split(rest, "/"); len(parts) < 3 {
			return check.Refusal{}, false
		}
		gvr.Group, gvr.Version, parts = parts[0], parts[1], parts[2:]
	} else {
		if parts = strings.Split(strings.TrimPrefix(path, "/"), "/"); len(parts) < 2 {
			return check.Refusal{}, false
		}
		gvr.Version, parts = parts[0], parts[1:]
	}
	r := check.Refusal{}
	if parts[0] == "namespaces" && len(parts) > 2 {
		r.Namespace, parts = parts[1], parts[2:]
	}
	gvr.Resource = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	r.Resource = gvr
	return r, true
}
