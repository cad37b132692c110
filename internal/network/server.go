package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/insight/spans"
)

// listen opens the socket. This happens before the configuration file tells runtimes to use it.
func (n *Network) listen() (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(n.cfg.SocketPath), 0o755); err != nil {
		return nil, fmt.Errorf("CNI socket: %w", err)
	}
	// A killed process may have left a socket; a live one holds the data folder's lock.
	_ = os.Remove(n.cfg.SocketPath)
	l, err := net.Listen("unix", n.cfg.SocketPath)
	if err != nil {
		return nil, fmt.Errorf("CNI socket: %w", err)
	}
	if err := os.Chmod(n.cfg.SocketPath, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("CNI socket: %w", err)
	}
	return l, nil
}

// serve answers the CNI plugin until ctx ends, and then waits for running requests.
func (n *Network) serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("CNI socket: %w", err)
		}
		running.Go(func() {
			defer conn.Close()
			n.answer(ctx, conn)
		})
	}
}

// maxRequest is the maximum size of a request in bytes. GC's lists all attachments, 100 bytes each.
const maxRequest = 16 << 20

// answer serves one connection: one request, one reply.
func (n *Network) answer(ctx context.Context, conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	var req cniRequest
	if err := json.NewDecoder(io.LimitReader(conn, maxRequest)).Decode(&req); err != nil {
		slog.Warn("cannot read a CNI request", "error", err)
		return
	}
	start := time.Now()
	reply, err := n.handle(ctx, &req)
	n.note(&req, start, err)
	if err != nil {
		slog.Warn("CNI request failed", "command", req.Command, "container", req.ContainerID, "args", req.Args, "error", err)
	} else {
		slog.Debug("CNI request", "command", req.Command, "container", req.ContainerID, "took", time.Since(start))
	}
	_ = json.NewEncoder(conn).Encode(reply)
}

// note keeps the span of an ADD for the pod's trace.
func (n *Network) note(req *cniRequest, began time.Time, err error) {
	if n.cfg.Spans == nil || req.Command != "ADD" {
		return
	}
	args := req.podArgs()
	s := spans.Span{Name: spans.Network, Namespace: args["K8S_POD_NAMESPACE"], Object: args["K8S_POD_NAME"], UID: args["K8S_POD_UID"], Begin: began, End: time.Now()}
	if err != nil {
		s.Error = err.Error()
	}
	n.cfg.Spans.Note(s)
}

// handle dispatches one request. The reply contains the error too.
func (n *Network) handle(ctx context.Context, req *cniRequest) (cniReply, error) {
	cfg, err := req.config()
	var result any
	if err == nil {
		switch req.Command {
		case "ADD":
			result, err = n.add(ctx, req, cfg)
		case "DEL":
			err = n.del(req)
		case "CHECK":
			err = n.check(req)
		case "STATUS":
			err = n.status()
		case "GC":
			err = n.gc(cfg)
		default:
			err = cniErrorf(cniInvalidEnv, "CNI_COMMAND %q: want ADD, DEL, CHECK, STATUS, GC or VERSION", req.Command)
		}
	}
	if err != nil {
		return errorReply(cfg.CNIVersion, err), err
	}
	if result == nil {
		return cniReply{}, nil
	}
	out, err := json.Marshal(result)
	return cniReply{Stdout: out}, err
}

var errNoRange = &cniError{code: cniTryAgainLater, err: errors.New("this node has no pod range yet (node.spec.podCIDR)")}

// add is CNI ADD. A repeated ADD for the same attachment replaces the first one and keeps the
// addresses.
func (n *Network) add(ctx context.Context, req *cniRequest, cfg cniConfig) (any, error) {
	if req.ContainerID == "" || req.IfName == "" || req.NetNS == "" {
		return nil, cniErrorf(cniInvalidEnv, "ADD needs CNI_CONTAINERID, CNI_IFNAME and CNI_NETNS")
	}
	mappings, err := validMappings(cfg.RuntimeConfig.PortMappings)
	if err != nil {
		return nil, err
	}
	args, key := req.podArgs(), attachmentKey(req.ContainerID, req.IfName)
	a := &attachment{
		ContainerID: req.ContainerID, IfName: req.IfName, NetNS: req.NetNS, HostLink: hostLinkName(key), PortMappings: mappings,
		PodNamespace: args["K8S_POD_NAMESPACE"], PodName: args["K8S_POD_NAME"], PodUID: args["K8S_POD_UID"],
	}
	defer n.turns.enter(key)()
	p, err := n.reserve(a)
	if err != nil {
		return nil, err
	}
	failpoint.Here("cni-reserved")
	isolated := n.isolate(ctx, a)
	if err = plug(a, p); err == nil && len(mappings) > 0 {
		err = n.mapPorts(a)
	}
	if e := <-isolated; err == nil {
		err = e
	}
	if err != nil {
		return nil, errors.Join(err, n.forget(a))
	}
	failpoint.Here("cni-added")
	return resultOf(cfg.CNIVersion, a, p), nil
}

// isolate starts to put the check of the pod's sender and its network policies in force, beside the
// work on its link. No process of the pod runs before ADD returns, so they judge the first packet.
func (n *Network) isolate(ctx context.Context, a *attachment) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := n.firewall.allowSource(a)
		if err == nil && n.cfg.Isolation != nil {
			if err = n.cfg.Isolation.Attach(ctx, a.forPolicies()); err != nil {
				err = cniErrorf(cniTryAgainLater, "%w", err)
			}
		}
		done <- err
	}()
	return done
}

// del is CNI DEL. A missing attachment is no error.
func (n *Network) del(req *cniRequest) error {
	key := attachmentKey(req.ContainerID, req.IfName)
	defer n.turns.enter(key)()
	n.mu.Lock()
	a := n.attachments[key]
	detached := slices.ContainsFunc(n.detached, func(l *attachment) bool { return l.key() == key })
	n.mu.Unlock()
	if a == nil && detached {
		return nil
	}
	failpoint.Here("cni-delete")
	if a == nil {
		return unplug(hostLinkName(key))
	}
	return n.forget(a)
}

func (n *Network) check(req *cniRequest) error {
	n.mu.Lock()
	a, p := n.attachments[attachmentKey(req.ContainerID, req.IfName)], n.plumbing
	n.mu.Unlock()
	if a == nil {
		return cniErrorf(3, "container %s has no attachment %s here", req.ContainerID, req.IfName)
	}
	return checkPlugged(a, p)
}

func (n *Network) status() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pools) == 0 {
		return cniErrorf(cniNotAvailable, "%w", errNoRange)
	}
	return nil
}

// gc removes every attachment that the runtime does not list.
func (n *Network) gc(cfg cniConfig) error {
	valid := map[string]bool{}
	for _, v := range cfg.ValidAttachments {
		valid[attachmentKey(v.ContainerID, v.IfName)] = true
	}
	n.mu.Lock()
	var stale []*attachment
	for key, a := range n.attachments {
		if !valid[key] {
			stale = append(stale, a)
		}
	}
	n.mu.Unlock()
	var errs []error
	for _, a := range stale {
		errs = append(errs, n.forgetStale(a))
	}
	return errors.Join(errs...)
}
