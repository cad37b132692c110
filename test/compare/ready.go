package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// waitReady polls /readyz until it says ok, once there is a kubeconfig.
func waitReady(ctx context.Context, kubeconfig string, ps ...*process) error {
	var client *http.Client
	var host string
	var died error
	err := until(ctx, 90*time.Second, "/readyz", func() bool {
		for _, p := range ps {
			select {
			case <-p.done:
				died = fmt.Errorf("%s ended before it was ready: %s", p.name, p.lastOutput())
				return true
			default:
			}
		}
		if client == nil {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return false
			}
			if client, err = rest.HTTPClientFor(config); err != nil {
				client = nil
				return false
			}
			host = config.Host
		}
		resp, err := client.Get(host + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	if died != nil {
		return died
	}
	return err
}
