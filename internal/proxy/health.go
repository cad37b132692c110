package proxy

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// healthServers serve the healthCheckNodePort of Services with externalTrafficPolicy Local. Load
// balancers get 200 while this node has endpoints, otherwise 503.
type healthServers struct {
	addr    string
	servers map[types.NamespacedName]*healthServer
}

type healthServer struct {
	name types.NamespacedName
	port int32
	http *http.Server
	done chan struct{}

	mu    sync.Mutex
	local int // guarded by mu
}

func newHealthServers(addr string) *healthServers {
	return &healthServers{addr: addr, servers: map[types.NamespacedName]*healthServer{}}
}

// set starts, changes or stops the Service's server according to its plan.
func (h *healthServers) set(name types.NamespacedName, p servicePlan) {
	s := h.servers[name]
	if s != nil && s.port != p.healthPort {
		s.stop()
		delete(h.servers, name)
		s = nil
	}
	if p.healthPort == 0 {
		return
	}
	if s == nil {
		s = &healthServer{name: name, port: p.healthPort, done: make(chan struct{})}
		l, err := net.Listen("tcp", net.JoinHostPort(h.addr, strconv.Itoa(int(p.healthPort))))
		if err != nil {
			slog.Warn("health-check node port cannot be served", "service", name, "error", err)
			return
		}
		s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
		go func() {
			defer close(s.done)
			if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				slog.Warn("health-check node port", "service", name, "error", err)
			}
		}()
		h.servers[name] = s
	}
	s.mu.Lock()
	s.local = p.localEndpoints
	s.mu.Unlock()
}

func (s *healthServer) stop() {
	_ = s.http.Close()
	<-s.done
}

func (h *healthServers) close() {
	for name, s := range h.servers {
		s.stop()
		delete(h.servers, name)
	}
}

// ServeHTTP answers in the format that load balancers and upstream's tests expect.
func (s *healthServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	local := s.local
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(local))
	if local == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"service":        map[string]string{"namespace": s.name.Namespace, "name": s.name.Name},
		"localEndpoints": local, "serviceProxyHealthy": true,
	})
}
