package apiserver

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/knarr-project/knarr/internal/apiserver/definitions"
)

// TestSlowWatchConvertsByItsOriginalDefinition: its objects are from before the
// definition changed. Afterwards no connection remains.
func TestSlowWatchConvertsByItsOriginalDefinition(t *testing.T) {
	var open atomic.Int64
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("converted")) }))
	hook.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	hook.StartTLS()
	defer hook.Close()
	config := &apiextensionsv1.WebhookClientConfig{URL: &hook.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})}
	for name, before := range map[string]bool{"it has already converted": true, "it has not": false} {
		t.Run(name, func(t *testing.T) {
			c := &definitions.Converter{Client: newTestServer(t).webhookClient}
			call := func() {
				t.Helper()
				if answer, err := c.Call(t.Context(), config, []byte("{}")); err != nil || string(answer) != "converted" {
					t.Errorf("%s %v", answer, err)
				}
			}
			if before {
				call()
			}
			c.Close()
			call()
			eventually(t, func() error {
				if n := open.Load(); n != 0 {
					return fmt.Errorf("%d connections are open", n)
				}
				return nil
			})
		})
	}
}
