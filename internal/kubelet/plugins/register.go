package plugins

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	// callTimeout is the deadline of each call of the registration protocol.
	callTimeout = 10 * time.Second
	// registerTimeout is the deadline of a handler.
	registerTimeout = 30 * time.Second
	firstDelay      = 100 * time.Millisecond
	maxDelay        = 30 * time.Second
)

// keep registers the plugin behind a socket, and deregisters it when ctx ends.
func (w *Watcher) keep(ctx context.Context, socket string) {
	for delay := firstDelay; ; delay = min(2*delay, maxDelay) {
		plugin, handler, err := w.register(ctx, socket)
		if err == nil {
			if handler != nil {
				<-ctx.Done()
				handler.Deregister(plugin)
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		w.Log.Warn("cannot register a plugin; trying again", "socket", socket, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// register registers the plugin once. The handler is nil if the plugin has another type.
func (w *Watcher) register(ctx context.Context, socket string) (Plugin, Handler, error) {
	connection, err := Dial(socket)
	if err != nil {
		return Plugin{}, nil, err
	}
	defer connection.Close()
	registration := registerapi.NewRegistrationClient(connection)
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := registration.GetInfo(asking, &registerapi.InfoRequest{})
	if err != nil {
		return Plugin{}, nil, fmt.Errorf("GetInfo: %w", err)
	}
	handler := w.Handlers[info.Type]
	if handler == nil {
		return Plugin{}, nil, nil
	}
	plugin := Plugin{Type: info.Type, Name: info.Name, Endpoint: info.Endpoint, Versions: info.SupportedVersions, Socket: socket}
	if plugin.Endpoint == "" {
		plugin.Endpoint = socket
	}
	if err = check(plugin); err == nil {
		registering, cancel := context.WithTimeout(ctx, registerTimeout)
		err = handler.Register(registering, plugin)
		cancel()
	}
	result := &registerapi.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		result.Error = err.Error()
	}
	telling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, told := registration.NotifyRegistrationStatus(telling, result); told != nil && err == nil {
		handler.Deregister(plugin)
		err = fmt.Errorf("NotifyRegistrationStatus: %w", told)
	}
	return plugin, handler, err
}

func check(p Plugin) error {
	if p.Name == "" {
		return fmt.Errorf("the plugin's name is empty")
	}
	if !filepath.IsAbs(p.Endpoint) {
		return fmt.Errorf("endpoint %q is not an absolute path", p.Endpoint)
	}
	return nil
}
