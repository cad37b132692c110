package devices

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/validation"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/knarr-project/knarr/internal/kubelet/plugins"
)

// socketName is the name of the registration socket.
const socketName = "kubelet.sock"

// Run serves the registration socket until ctx ends. It first removes the sockets of earlier
// plugins. Plugins notice the new registration socket and register again.
func (m *Manager) Run(ctx context.Context) error {
	if err := os.MkdirAll(m.Dir, 0o750); err != nil {
		return fmt.Errorf("device plugins: %w", err)
	}
	if err := removeSockets(m.Dir); err != nil {
		return fmt.Errorf("device plugins: %w", err)
	}
	listener, err := net.Listen("unix", filepath.Join(m.Dir, socketName))
	if err != nil {
		return fmt.Errorf("device plugins: %w", err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64<<10), grpc.MaxConcurrentStreams(16))
	pluginapi.RegisterRegistrationServer(server, &registration{m: m, life: ctx})
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
	case err = <-stopped:
	}
	server.Stop()
	m.wait()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("device plugins: %w", err)
	}
	return nil
}

// wait returns when no plugin is followed any more.
func (m *Manager) wait() {
	m.mu.Lock()
	var all []*plugin
	for _, r := range m.resources {
		if r.plugin != nil {
			all = append(all, r.plugin)
		}
	}
	m.mu.Unlock()
	for _, p := range all {
		p.cancel()
		<-p.done
	}
}

func removeSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// registration is the service of the registration socket.
type registration struct {
	pluginapi.UnimplementedRegistrationServer
	m    *Manager
	life context.Context //nolint:containedctx // plugins outlive the call that registers them
}

func (r *registration) Register(ctx context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	if err := checkVersion(request.Version); err != nil {
		return nil, err
	}
	if err := checkResource(request.ResourceName); err != nil {
		return nil, err
	}
	if !filepath.IsLocal(request.Endpoint) || filepath.Clean(request.Endpoint) == socketName {
		return nil, fmt.Errorf("the endpoint %q is not the name of a socket in the folder of device plugins", request.Endpoint)
	}
	options := request.Options
	if options == nil {
		options = &pluginapi.DevicePluginOptions{}
	}
	if _, err := r.m.connect(ctx, r.life, request.ResourceName, filepath.Join(r.m.Dir, request.Endpoint), options); err != nil {
		return nil, err
	}
	return &pluginapi.Empty{}, nil
}

func checkVersion(versions ...string) error {
	for _, v := range versions {
		if slices.Contains(pluginapi.SupportedVersions[:], v) {
			return nil
		}
	}
	return fmt.Errorf("requested API version %q is not supported by kubelet. Supported versions are %q", strings.Join(versions, ","), pluginapi.SupportedVersions)
}

// checkResource checks the name of an extended resource (API reference, "Extended resources").
func checkResource(name string) error {
	if !Extended(name) || len(validation.IsQualifiedName("requests."+name)) > 0 {
		return fmt.Errorf("the ResourceName %q is invalid", name)
	}
	return nil
}

// Extended reports whether the name is an extended resource's: it has a domain, but not
// Kubernetes'.
func Extended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, "requests.")
}

// handler registers the device plugins whose sockets are in the plugin registry.
type handler struct {
	m    *Manager
	life context.Context //nolint:containedctx // plugins outlive the call that registers them

	mu      sync.Mutex
	plugins map[string]*plugin // by registration socket
}

// Handler returns the handler for plugins of the type DevicePlugin. Plugins are followed until life
// ends.
func (m *Manager) Handler(life context.Context) plugins.Handler {
	return &handler{m: m, life: life, plugins: map[string]*plugin{}}
}

func (h *handler) Register(ctx context.Context, p plugins.Plugin) error {
	if err := checkVersion(p.Versions...); err != nil {
		return err
	}
	if err := checkResource(p.Name); err != nil {
		return err
	}
	made, err := h.m.connect(ctx, h.life, p.Name, p.Endpoint, nil)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.plugins[p.Socket] = made
	h.mu.Unlock()
	return nil
}

func (h *handler) Deregister(p plugins.Plugin) {
	h.mu.Lock()
	made := h.plugins[p.Socket]
	delete(h.plugins, p.Socket)
	h.mu.Unlock()
	if made != nil {
		made.cancel()
		<-made.done
	}
}
