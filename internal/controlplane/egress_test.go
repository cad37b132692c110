package controlplane

import (
	"log/slog"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/egress/egresstest"
	"github.com/knarr-project/knarr/internal/trace/tracetest"
)

func TestAnOutsideStoreIsReachedThroughItsProxy(t *testing.T) {
	proxy := egresstest.Connect(t, nil)
	if got := viaEgress(proxy.Selector(t, "HTTPConnect", egress.Cluster)); got != nil {
		t.Error("the cluster's proxy is taken for the store's")
	}
	there := tracetest.Listen(t) // it speaks gRPC, which is sufficient here
	opts := append(viaEgress(proxy.Selector(t, "HTTPConnect", egress.Etcd)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///"+there.Endpoint, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(t.Context(), state) {
			t.Fatalf("the store is %s", state)
		}
	}
	if asked := proxy.Asked(); !slices.Contains(asked, there.Endpoint) {
		t.Errorf("the proxy got requests for %v", asked)
	}
}

func TestTracesGoThroughTheControlPlanesProxy(t *testing.T) {
	proxy, collector := egresstest.Connect(t, nil), tracetest.Listen(t)
	s := proxy.Selector(t, "HTTPConnect", egress.ControlPlane)
	tracer, err := openTracer(t.Context(), collector.Config(t, 1000000), s.To(egress.ControlPlane), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracer.Provider().Tracer("test").Start(t.Context(), "work")
	span.End()
	if err := tracer.Close(); err != nil { // Close sends the remaining spans
		t.Fatal(err)
	}
	if n := len(collector.Spans()); n != 1 {
		t.Errorf("%d spans", n)
	}
	if asked := proxy.Asked(); !slices.Contains(asked, collector.Endpoint) {
		t.Errorf("the proxy got requests for %v", asked)
	}
}
