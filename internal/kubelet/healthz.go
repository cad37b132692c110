package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// serveHealthz opens the plain HTTP port for /healthz (KubeletConfiguration, healthzPort), which
// tools on this machine read.
func (k *Kubelet) serveHealthz(ctx context.Context) (run func(context.Context), err error) {
	if *k.Settings.HealthzPort == 0 {
		return func(context.Context) {}, nil
	}
	address := net.JoinHostPort(k.Settings.HealthzBindAddress, strconv.Itoa(int(*k.Settings.HealthzPort)))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("healthzPort %d on healthzBindAddress %s: %w", *k.Settings.HealthzPort, k.Settings.HealthzBindAddress, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := k.healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	h := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	return func(ctx context.Context) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			<-ctx.Done()
			_ = h.Close()
		}()
		if err := h.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			k.log.Error("the port for /healthz has closed", "address", address, "error", err)
		}
		<-done
	}, nil
}
