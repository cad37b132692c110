package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// streamOptions returns an exec's or attach's options, for admission.
func streamOptions(q url.Values, subresource string) runtime.Object {
	stdin, stdout, stderr, tty := wire.IsTrue(q.Get("stdin")), wire.IsTrue(q.Get("stdout")), wire.IsTrue(q.Get("stderr")), wire.IsTrue(q.Get("tty"))
	if subresource == "attach" {
		return &corev1.PodAttachOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr, TTY: tty, Container: q.Get("container")}
	}
	return &corev1.PodExecOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr, TTY: tty, Container: q.Get("container"), Command: q["command"]}
}

// logOptions parses the query of a log request.
func logOptions(q url.Values) (*corev1.PodLogOptions, error) {
	opts := &corev1.PodLogOptions{
		Container: q.Get("container"), Follow: wire.IsTrue(q.Get("follow")), Previous: wire.IsTrue(q.Get("previous")), Timestamps: wire.IsTrue(q.Get("timestamps")),
		InsecureSkipTLSVerifyBackend: wire.IsTrue(q.Get("insecureSkipTLSVerifyBackend")),
	}
	for param, into := range map[string]**int64{"sinceSeconds": &opts.SinceSeconds, "tailLines": &opts.TailLines, "limitBytes": &opts.LimitBytes} {
		text := q.Get(param)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		*into = &n
	}
	if text := q.Get("sinceTime"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		opts.SinceTime = &metav1.Time{Time: at}
	}
	if text := q.Get("stream"); q.Has("stream") {
		opts.Stream = &text
	}
	return opts, nil
}

func validateLogOptions(opts *corev1.PodLogOptions) (errs field.ErrorList) {
	if opts.TailLines != nil && *opts.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *opts.TailLines, "must be greater than or equal to 0"))
	}
	if opts.LimitBytes != nil && *opts.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *opts.LimitBytes, "must be greater than 0"))
	}
	switch {
	case opts.SinceSeconds != nil && opts.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case opts.SinceSeconds != nil && *opts.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *opts.SinceSeconds, "must be greater than 0"))
	}
	if opts.Stream != nil { // the feature PodLogsQuerySplitStreams is off
		errs = append(errs, field.Forbidden(field.NewPath("stream"), "may not be specified"))
	}
	return errs
}

// kubeletParams returns the query for the kubelet.
func kubeletParams(opts *corev1.PodLogOptions) url.Values {
	q := url.Values{}
	for name, set := range map[string]bool{"follow": opts.Follow, "previous": opts.Previous, "timestamps": opts.Timestamps} {
		if set {
			q.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": opts.SinceSeconds, "tailLines": opts.TailLines, "limitBytes": opts.LimitBytes} {
		if n != nil {
			q.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if opts.SinceTime != nil {
		q.Set("sinceTime", opts.SinceTime.Format(time.RFC3339))
	}
	return q
}

// serveLog passes the kubelet's log on as it arrives.
func (c *connection) serveLog(ctx context.Context) error {
	opts, err := logOptions(c.R.URL.Query())
	if err != nil {
		return err
	}
	c.nodes.Metrics.LogAsked(opts.InsecureSkipTLSVerifyBackend)
	if errs := validateLogOptions(opts); len(errs) > 0 {
		return api.Invalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), c.Name, errs)
	}
	pod, err := c.pod(ctx)
	if err != nil {
		return err
	}
	container, err := containerOf(pod, opts.Container)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		c.W.WriteHeader(http.StatusNoContent) // nothing has run, so there is nothing to show
		return nil
	}
	c.W.Header().Set("Content-Type", "text/plain")
	location, err := c.kubeletOf(ctx, pod)
	if err != nil {
		return err
	}
	location.Path = fmt.Sprintf("/containerLogs/%s/%s/%s", pod.Namespace, pod.Name, container)
	location.RawQuery = kubeletParams(opts).Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return err
	}
	transport := c.nodes.Transports().Kubelet
	if opts.InsecureSkipTLSVerifyBackend {
		transport = c.nodes.Transports().Unverified
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		c.nodes.Metrics.LogFailed(err)
		return apierrors.NewInternalError(fmt.Errorf("get the log from node %s: %w", pod.Spec.NodeName, err))
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return c.kubeletError(response)
	}
	if wsstream.IsWebSocketRequest(c.R) {
		if err := wsstream.NewReader(response.Body, true, wsstream.NewDefaultReaderProtocols()).Copy(c.W, c.R); err != nil {
			c.nodes.Log.Debug("a log over WebSocket ended early", "pod", c.Name, "err", err)
		}
		return nil
	}
	c.W.WriteHeader(http.StatusOK)
	copyFlushing(c.W, response.Body)
	return nil
}

// kubeletError passes on the kubelet's error.
func (c *connection) kubeletError(response *http.Response) error {
	const most = 2048
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	text := string(body)
	switch response.StatusCode {
	case http.StatusInternalServerError:
		return apierrors.NewInternalError(fmt.Errorf("%s", text))
	case http.StatusBadRequest:
		return apierrors.NewBadRequest(text)
	}
	return apierrors.NewGenericServerResponse(response.StatusCode, "", c.Endpoint.Resource, c.Name, text, 0, false)
}

// copyFlushing flushes after each read, because the client may be following.
func copyFlushing(w http.ResponseWriter, from io.Reader) {
	flusher := http.NewResponseController(w)
	buf := make([]byte, 32*1024)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			_ = flusher.Flush()
		}
		if err != nil {
			return
		}
	}
}
