package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/probe"
)

// hook runs a container's lifecycle hook.
func (w *Worker) hook(ctx context.Context, _ *corev1.Pod, c *corev1.Container, id string, h *corev1.LifecycleHandler, ips []string) error {
	ip := ""
	if len(ips) > 0 {
		ip = ips[0]
	}
	switch {
	case h.Exec != nil:
		timeout := time.Duration(0)
		if deadline, ok := ctx.Deadline(); ok {
			timeout = max(time.Until(deadline), time.Second)
		}
		_, stderr, err := w.Runtime.ExecSync(ctx, id, h.Exec.Command, timeout)
		if err != nil {
			return fmt.Errorf("exec %q: %w: %s", h.Exec.Command, err, stderr)
		}
		return nil
	case h.HTTPGet != nil:
		return httpHook(ctx, h.HTTPGet, c, ip)
	case h.TCPSocket != nil: // deprecated in the API; it only connects
		port, err := probe.Port(h.TCPSocket.Port, c)
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		return conn.Close()
	case h.Sleep != nil:
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
		}
		return nil
	}
	return fmt.Errorf("invalid handler: %v", h)
}

func httpHook(ctx context.Context, a *corev1.HTTPGetAction, c *corev1.Container, ip string) error {
	req, err := probe.Request(ctx, a, c, ip, "kube-lifecycle/1.36")
	if err != nil {
		return err
	}
	cl, done := probe.Client(nil)
	defer done()
	resp, err := cl.Do(req)
	if err != nil && req.URL.Scheme == "https" && isHTTP(err) {
		// As upstream: if the server answers HTTPS with plain HTTP, the hook tries plain HTTP.
		req = req.Clone(ctx)
		req.URL.Scheme = "http"
		req.Header.Del("Authorization")
		resp, err = cl.Do(req)
	}
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 10<<10))
	resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s", req.Method, req.URL, resp.Status)
	}
	return nil
}

func isHTTP(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch)
}

// notFound reports whether the runtime does not know the object.
func notFound(err error) bool { return grpcstatus.Code(err) == codes.NotFound }
