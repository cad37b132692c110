package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/doctor"
	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/process"
)

// Node runs a worker of a cluster whose server is elsewhere.
func Node(ctx context.Context, p Params) error {
	if p.Config.Join == "" {
		return errors.New("node: --join URL is missing: the server to join, with a --token-file made there by `knarr token create`")
	}
	if err := p.readSettings(); err != nil {
		return err
	}
	return p.locked("node", doctor.Node|doctor.Proxy, func(p Params) error {
		if err := validateJoin(p.Config); err != nil {
			return err
		}
		n := p.nodeHere()
		return p.process(ctx, []process.Phase{
			{{Name: "membership", Start: n.startMembership}, {Name: "container runtime", Start: n.startRuntime}},
			n.parts(),
		})
	})
}

// startMembership joins the cluster, or loads the results of an earlier join.
func (w *worker) startMembership(ctx context.Context) (func() error, error) {
	j, err := join(ctx, w.cfg, w.log)
	if err != nil {
		return nil, err
	}
	if err := j.check(ctx); err != nil {
		return nil, err
	}
	w.joined = j
	if w.kubeletTLS, err = j.kubeletTLS(); err != nil {
		return nil, err
	}
	if err := w.reach(j.config()); err != nil {
		return nil, err
	}
	c, err := w.client(w.nodeUser())
	if err != nil {
		return nil, err
	}
	parts := c
	if j.account = offersAccount(ctx, c); j.account {
		parts, err = client.Remote(j.partsConfig(ctx, c))
		if err != nil {
			return nil, err
		}
		w.remote = func(user string) (client.Interface, error) {
			if user == w.partsUser().Name {
				return parts, nil
			}
			return c, nil
		}
	} else {
		w.log.Warn("the server has no account for the parts of this node: network, proxy and DNS use the node's own identity, and need its right to read pods and nodes")
	}
	if err := j.learn(ctx, c); err != nil {
		return nil, err
	}
	return process.Background(func(ctx context.Context) error {
		return process.Alongside(ctx, process.Part(w.followUpgrades), func(ctx context.Context) error { return j.run(ctx, c, parts) })
	})(ctx)
}

// reach makes the configuration's identity the node's only one.
func (w *worker) reach(config *rest.Config) error {
	c, err := client.Remote(config)
	if err != nil {
		return err
	}
	w.remote = func(string) (client.Interface, error) { return c, nil }
	return nil
}

// kubeconfig reads the kubeconfig of a component that runs alone.
func kubeconfig(path, component string) (*rest.Config, error) {
	if path == "" {
		return nil, errors.New("--kubeconfig is missing: it tells how to reach the API server")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	config.UserAgent = userAgent(component)
	return config, nil
}

// userAgent returns the user agent of the upstream component. The part before the slash is the
// field manager of its writes, by which other components recognize them.
func userAgent(component string) string {
	_, version, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	return component + "/" + version
}

// alone runs one component against an API server elsewhere. If a port is configured, it also serves
// the component's health and metrics.
func (p Params) alone(ctx context.Context, name string, served *component, run func(ctx context.Context, c client.Interface, config *rest.Config) error) error {
	return p.aloneWith(ctx, name, served, func(*rest.Config) {}, run)
}

// aloneWith is alone with changes of the connection to the API server.
func (p Params) aloneWith(ctx context.Context, name string, served *component, change func(*rest.Config), run func(ctx context.Context, c client.Interface, config *rest.Config) error) error {
	config, err := kubeconfig(p.Config.Kubeconfig, served.name)
	if err != nil {
		return err
	}
	change(config)
	c, err := client.Remote(config)
	if err != nil {
		return err
	}
	var phases []process.Phase
	if p.Config.Observe.SecurePort != 0 {
		phases = append(phases, process.Phase{{Name: "health and metrics", Start: func(ctx context.Context) (func() error, error) {
			serve, err := served.observe(ctx, p, c)
			if err != nil {
				return nil, err
			}
			return process.Background(serve)(ctx)
		}}})
	}
	return p.process(ctx, append(phases, process.Phase{{Name: name, Start: process.Background(func(ctx context.Context) error { return run(ctx, c, config) })}}))
}

// lead runs fn while this process holds the lease that the upstream component of the same name
// uses.
func lead(ctx context.Context, c client.Interface, name string, leading *controller.Leading, fn func(ctx context.Context) error) error {
	return elect(ctx, controller.Election{Client: c, Namespace: "kube-system", Name: name, Leading: leading}, fn)
}

// elect runs fn while this process wins the election.
func elect(ctx context.Context, e controller.Election, fn func(ctx context.Context) error) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	e.Identity = fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano())
	return e.Run(ctx, fn)
}

// Kubelet runs the node agent alone, with its runtime and network.
func Kubelet(ctx context.Context, p Params) error {
	if err := p.readSettings(); err != nil {
		return err
	}
	var peers client.Interface
	if path := p.Config.NetworkKubeconfig; path != "" {
		config, err := kubeconfig(path, "knarr-network")
		if err != nil {
			return err
		}
		if peers, err = client.Remote(config); err != nil {
			return err
		}
	}
	return p.beside("kubelet", func() error {
		return p.onNode(ctx, "kubelet", doctor.Node, func(w *worker) process.Phase {
			w.peers, w.spans = peers, &spans.Ring{}
			return process.Phase{{Name: "pod network", Start: w.startNetwork}, {Name: "node agent", Start: w.startKubelet}}
		}, true)
	})
}

// Proxy runs the service proxy alone.
func Proxy(ctx context.Context, p Params) error {
	return p.onNode(ctx, "kube-proxy", doctor.Proxy, func(w *worker) process.Phase { return process.Phase{{Name: "service proxy", Start: w.startProxy}} }, false)
}

func (p Params) onNode(ctx context.Context, component string, role doctor.Role, phase func(*worker) process.Phase, runtime bool) error {
	config, err := kubeconfig(p.Config.Kubeconfig, component)
	if err != nil {
		return err
	}
	if err := p.examine(role); err != nil {
		return err
	}
	w := p.nodeHere()
	w.kubeletTLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
	var phases []process.Phase
	var anonymous *rest.Config
	if runtime {
		if err := rest.LoadTLSFiles(config); err != nil {
			return err
		}
		anonymous = rest.AnonymousClientConfig(config)
		if w.kubeletTLS, err = selfSigned(p.Config, config.CAData); err != nil {
			return err
		}
		first := process.Phase{{Name: "container runtime", Start: w.startRuntime}}
		if w.settings.RotateCertificates {
			var renewal process.Component
			if config, renewal, err = w.rotateClient(config); err != nil {
				return err
			}
			first = append(first, renewal)
		}
		if w.settings.ServerTLSBootstrap {
			var renewal process.Component
			if w.kubeletTLS, renewal, err = w.bootstrapServing(w.kubeletTLS); err != nil {
				return err
			}
			first = append(first, renewal)
		}
		phases = append(phases, first)
	}
	if err := w.reach(config); err != nil {
		return err
	}
	if runtime {
		if err := w.choose(ctx, anonymous); err != nil {
			return err
		}
	}
	return p.process(ctx, append(phases, phase(w)))
}

// choose gives the node's parts an account if the server has one and the kubeconfig's identity does
// not suffice.
func (w *worker) choose(ctx context.Context, anonymous *rest.Config) error {
	own, err := w.client(w.nodeUser())
	if err != nil {
		return err
	}
	parts, err := client.Remote(withTokens(ctx, anonymous, own, w.cfg.NodeName))
	if err != nil {
		return err
	}
	chosen := &chosen{Interface: own, parts: parts, log: w.log}
	w.remote = func(user string) (client.Interface, error) {
		if user == w.partsUser().Name {
			return chosen, nil
		}
		return own, nil
	}
	return nil
}

// selfSigned serves the node's API with a self-signed certificate, as upstream's kubelet does
// without a certificate of its own. Clients are authenticated by the cluster's CA.
func selfSigned(cfg *config.Config, clientCAs []byte) (*tls.Config, error) {
	pair, err := selfSignedPair(cfg)
	if err != nil {
		return nil, err
	}
	ca := x509.NewCertPool()
	ca.AppendCertsFromPEM(clientCAs)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: ca, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}, nil
}
