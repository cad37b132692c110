package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	internalapi "k8s.io/cri-api/pkg/apis"
	remote "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// Result is the result of one probe.
type Result string

const (
	Success Result = "success"
	Warning Result = "warning" // counts as success
	Failure Result = "failure"
	Unknown Result = "unknown" // the probe could not be carried out; it does not count
)

const (
	userAgent   = "kube-probe/1.36"
	maxBody     = 10 << 10
	maxRedirect = 10
)

// Target is the probed container.
type Target struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	ID        string
	IP        string
}

// Prober carries out single probes.
type Prober struct {
	Runtime internalapi.RuntimeService
}

// Probe carries out one probe. The output is for events.
func (p *Prober) Probe(ctx context.Context, t Target, h *corev1.Probe) (Result, string) {
	timeout := time.Duration(max(h.TimeoutSeconds, 1)) * time.Second
	if h.Exec != nil {
		// The runtime enforces the timeout, because it has to clean up.
		return p.exec(ctx, t, h.Exec, timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case h.HTTPGet != nil:
		return probeHTTP(ctx, t, h.HTTPGet)
	case h.TCPSocket != nil:
		port, err := Port(h.TCPSocket.Port, t.Container)
		if err != nil {
			return Unknown, err.Error()
		}
		return probeTCP(ctx, net.JoinHostPort(either(h.TCPSocket.Host, t.IP), strconv.Itoa(port)))
	case h.GRPC != nil:
		return probeGRPC(ctx, net.JoinHostPort(t.IP, strconv.Itoa(int(h.GRPC.Port))), h.GRPC.Service, timeout)
	}
	return Unknown, fmt.Sprintf("missing probe handler for %s:%s", spec.FullName(t.Pod), t.Container.Name)
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Port resolves a named port of the container.
func Port(p intstr.IntOrString, c *corev1.Container) (int, error) {
	n := p.IntValue()
	if p.Type == intstr.String {
		n = 0
		for _, cp := range c.Ports {
			if cp.Name == p.StrVal {
				n = int(cp.ContainerPort)
			}
		}
		if n == 0 {
			if v, err := strconv.Atoi(p.StrVal); err == nil {
				n = v
			}
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", p.String())
	}
	return n, nil
}

func (p *Prober) exec(ctx context.Context, t Target, a *corev1.ExecAction, timeout time.Duration) (Result, string) {
	literal := map[string]string{}
	for _, e := range t.Container.Env {
		literal[e.Name] = e.Value
	}
	command := make([]string, len(a.Command))
	for i, s := range a.Command {
		command[i] = spec.Expand(s, func(n string) (string, bool) { v, ok := literal[n]; return v, ok })
	}
	stdout, stderr, err := p.Runtime.ExecSync(ctx, t.ID, command, timeout)
	out := string(append(stdout, stderr...))
	if len(out) > maxBody {
		out = out[:maxBody]
	}
	var exit utilexec.ExitError
	switch {
	case err == nil:
		return Success, out
	case errors.As(err, &exit):
		if exit.ExitStatus() == 0 {
			return Success, out
		}
		return Failure, out
	case errors.Is(err, remote.ErrCommandTimedOut):
		return Failure, err.Error()
	}
	return Unknown, err.Error()
}

// Request builds the HTTP request of an action, for probes and hooks.
func Request(ctx context.Context, a *corev1.HTTPGetAction, c *corev1.Container, ip, agent string) (*http.Request, error) {
	port, err := Port(a.Port, c)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Path)
	if err != nil {
		u = &url.URL{Path: a.Path}
	}
	u.Scheme = strings.ToLower(either(string(a.Scheme), "http"))
	u.Host = net.JoinHostPort(either(a.Host, ip), strconv.Itoa(port))
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, h := range a.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", agent)
	} else if req.Header.Get("User-Agent") == "" {
		req.Header["User-Agent"] = []string{""}
	}
	if _, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept")
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	return req, nil
}

// Client is an HTTP client for one request to a container. It keeps no connection, verifies no
// certificate and uses no proxy.
func Client(follow func(req *http.Request, via []*http.Request) error) (c *http.Client, done func()) {
	transport := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Proxy: nil,
	}
	return &http.Client{Transport: transport, CheckRedirect: follow}, transport.CloseIdleConnections
}

func probeHTTP(ctx context.Context, t Target, a *corev1.HTTPGetAction) (Result, string) {
	req, err := Request(ctx, a, t.Container, t.IP, userAgent)
	if err != nil {
		return Unknown, err.Error()
	}
	c, done := Client(func(r *http.Request, via []*http.Request) error {
		if r.URL.Hostname() != via[0].URL.Hostname() {
			return http.ErrUseLastResponse
		}
		if len(via) >= maxRedirect {
			return errors.New("stopped after 10 redirects")
		}
		return nil
	})
	defer done()
	resp, err := c.Do(req)
	if err != nil {
		return Failure, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return Failure, err.Error()
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 400 {
		if resp.StatusCode >= 300 {
			return Warning, fmt.Sprintf("Probe terminated redirects, Response body: %s", body)
		}
		return Success, string(body)
	}
	return Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode)
}

func probeTCP(ctx context.Context, addr string) (Result, string) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return Failure, err.Error()
	}
	conn.Close()
	return Success, ""
}

func probeGRPC(ctx context.Context, addr string, service *string, timeout time.Duration) (Result, string) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent(userAgent), grpc.WithNoProxy())
	if err != nil {
		return Failure, fmt.Sprintf("error: failed to connect service at %q: %v", addr, err)
	}
	defer conn.Close()
	name := ""
	if service != nil {
		name = *service
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: name}, grpc.WaitForReady(true))
	if err != nil {
		switch grpcstatus.Code(err) {
		case codes.Unimplemented:
			return Failure, fmt.Sprintf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", grpcstatus.Convert(err).Message())
		case codes.DeadlineExceeded:
			return Failure, fmt.Sprintf("timeout: failed to connect service %q within %v: context deadline exceeded", addr, timeout)
		}
		return Failure, fmt.Sprintf("error: health rpc probe failed: %s", grpcstatus.Convert(err).Message())
	}
	if resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return Failure, fmt.Sprintf("service unhealthy (responded with %q)", resp.Status.String())
	}
	return Success, "service healthy"
}
