package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrationDir is the folder of registration sockets in the registrar's container.
const registrationDir = "/registration"

// registrar announces a driver to the node agent.
type registrar struct {
	registerapi.UnimplementedRegistrationServer
	name, endpoint string
	refused        chan error
}

func (r *registrar) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		select {
		case r.refused <- fmt.Errorf("the node agent refuses driver %s: %s", r.name, s.Error):
		default:
		}
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

// Register announces the driver until ctx ends. If the node agent refuses it, Register ends with an
// error, so that the container starts again.
func Register(ctx context.Context, o Options) error {
	if o.RegistrationPath == "" {
		return errors.New("the flag --kubelet-registration-path is empty: give the socket's path on the node")
	}
	d, err := dial(ctx, o)
	if err != nil {
		return err
	}
	defer d.Close()
	return register(ctx, d.name, o.RegistrationPath, registrationDir)
}

func register(ctx context.Context, name, endpoint, dir string) error {
	socket := filepath.Join(dir, name+"-reg.sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server, r := grpc.NewServer(), &registrar{name: name, endpoint: endpoint, refused: make(chan error, 1)}
	registerapi.RegisterRegistrationServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer server.Stop() // removes the socket
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.refused:
		return err
	case err := <-served:
		return err
	}
}

// Liveness answers /healthz with the driver's health until ctx ends.
func Liveness(ctx context.Context, o Options) error {
	d, err := dial(ctx, o)
	if err != nil {
		return err
	}
	defer d.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, request *http.Request) {
		ctx, cancel := context.WithTimeout(request.Context(), o.Timeout)
		defer cancel()
		answer, err := csispec.NewIdentityClient(d).Probe(ctx, &csispec.ProbeRequest{})
		if err == nil && answer.Ready != nil && !answer.Ready.Value {
			err = errors.New("the driver is not ready")
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := &http.Server{Addr: fmt.Sprintf(":%d", o.HealthPort), Handler: mux, ReadHeaderTimeout: o.Timeout}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}
