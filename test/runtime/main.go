// Command runtime runs the included container runtime and the pod network on this machine, without
// a node agent: a suite that judges runtimes makes its own sandboxes, which an agent would remove
// as unknown. It prints `ready` with the runtime's endpoint. At SIGTERM it removes the containers
// and all that the runtime has made.
//
//	runtime DATA-DIR
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
	"github.com/knarr-project/knarr/internal/cri"
	"github.com/knarr-project/knarr/internal/image"
	"github.com/knarr-project/knarr/internal/network"
)

const (
	nodeName = "node"
	podCIDR  = "10.42.0.0/24"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: runtime DATA-DIR")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "runtime:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dataDir string) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	config := cri.Config{DataDir: dataDir, Logger: slog.Default()}
	r, err := cri.Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		r.Wait()
		err = errors.Join(err, cri.Purge(context.WithoutCancel(ctx), config))
	}()
	if err := makePause(ctx, r); err != nil {
		return err
	}
	runDir := filepath.Dir(r.Socket)
	objects := clienttest.NewMemory()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Spec: corev1.NodeSpec{PodCIDR: podCIDR, PodCIDRs: []string{podCIDR}}}
	if _, err := client.Create(ctx, client.Interface(objects), node); err != nil {
		return err
	}
	n, err := network.New(network.Config{
		NodeName: nodeName, Client: objects, SocketPath: filepath.Join(runDir, "cni.sock"), CNIConfDir: filepath.Join(dataDir, "cni", "net.d"),
		DataDir: filepath.Join(dataDir, "network"), ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix(podCIDR)},
	})
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- n.Run(ctx) }()
	select {
	case <-n.Ready():
	case err := <-served:
		return errors.Join(errors.New("the pod network has ended"), err)
	}
	fmt.Println("ready", r.Endpoint, runDir)
	return <-served
}

func makePause(ctx context.Context, r *cri.Runtime) error {
	images, err := image.Dial(r.Socket)
	if err != nil {
		return err
	}
	defer images.Close()
	return images.EnsurePause(ctx, cri.DefaultSandboxImage, func() ([]byte, error) { return r.Program("pause") })
}
