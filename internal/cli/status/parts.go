package status

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/cri"
)

// look queries the API server and the runtime concurrently.
func (r *Report) look(ctx context.Context, record *clusters.Record) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var runtime Part
	var aside sync.WaitGroup
	if record.HasNode() {
		aside.Go(func() { runtime = runtimePart(ctx, record) })
	}
	r.lookAtAPI(ctx, record)
	aside.Wait()
	if record.HasNode() {
		r.Parts = append(r.Parts, runtime)
	}
}

func (r *Report) lookAtAPI(ctx context.Context, record *clusters.Record) {
	config, err := access(record)
	if err != nil {
		r.part("API server", Unknown, oneLine(err))
		return
	}
	used := func() string { return "" }
	if !record.HasServer() {
		config, used = workersReach(record, config)
	}
	// Leave time to ask another server.
	limited, cancel := context.WithTimeout(ctx, Timeout/2)
	defer cancel()
	ok := r.readyz(limited, record, config)
	if address := used(); address != "" && len(r.Parts) > 0 {
		r.Parts[len(r.Parts)-1].Text += ", at " + address
	}
	if record.HasServer() && record.Role != "apiserver" {
		for _, name := range []string{"controllers", "scheduler"} {
			if ok {
				r.part(name, Fine, "in this process, which ends when one of them does")
			} else {
				r.part(name, Unknown, "they work through the API server")
			}
		}
	}
	if config.Insecure {
		r.part("node", Unknown, "only root may look ("+record.Kubeconfig()+"): try sudo")
		return
	}
	if record.HasServer() && !ok {
		if other := r.otherServer(record, config); other != nil {
			config, ok = other, true
		}
	}
	c, err := client.Remote(config)
	if err != nil {
		r.part("node", Unknown, oneLine(err))
		return
	}
	if record.HasServer() && ok {
		r.members(ctx, config)
	}
	if record.HasNode() {
		r.node(ctx, c, record.NodeName, ok)
	}
	if ok {
		r.count(ctx, c, record)
	}
}

// access returns the admin's configuration or the node's own. It returns an error if this user may
// read neither.
func access(record *clusters.Record) (*rest.Config, error) {
	if record.HasServer() {
		if !readable(record.Kubeconfig()) {
			return &rest.Config{Host: record.URL(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, nil
		}
		return clientcmd.BuildConfigFromFlags("", record.Kubeconfig())
	}
	pki := filepath.Join(record.DataDir, "pki")
	server, _, _ := strings.Cut(record.Join, ",")
	if server == "" {
		return nil, errors.New("it is elsewhere, and not known to this data folder")
	}
	// Certificate and key are in one file.
	cert, key := filepath.Join(pki, "node.pem"), filepath.Join(pki, "node.pem")
	if _, err := os.Stat(cert); errors.Is(err, os.ErrNotExist) {
		// The files of an earlier version.
		cert, key = filepath.Join(pki, "node.crt"), filepath.Join(pki, "node.key")
	}
	if !readable(key) {
		return &rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, nil
	}
	return &rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{
		CAFile: filepath.Join(pki, "ca.crt"), CertFile: cert, KeyFile: key,
	}}, nil
}

// readyz checks the API server and its store.
func (r *Report) readyz(ctx context.Context, record *clusters.Record, config *rest.Config) bool {
	passed, failed, err := checks(ctx, config)
	if err != nil {
		r.part("API server", Bad, whyUnreachable(err))
		return false
	}
	if len(failed) > 0 {
		r.part("API server", Bad, "/readyz fails: "+strings.Join(failed, ", "))
	} else {
		r.part("API server", Fine, fmt.Sprintf("/readyz passes, %d checks", len(passed)))
	}
	if record.HasServer() {
		health, text := Fine, "etcd answers"
		for _, name := range failed {
			if strings.HasPrefix(name, "etcd") {
				health, text = Bad, "etcd does not answer"
			}
		}
		r.part("store", health, text)
	}
	return len(failed) == 0
}

// checks queries /readyz and returns the passed and failed checks.
func checks(ctx context.Context, config *rest.Config) (passed, failed []string, err error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	defer c.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+"/readyz?verbose", nil)
	if err != nil {
		return nil, nil, err
	}
	response, err := c.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "[+]"); ok {
			passed = append(passed, strings.Fields(name)[0])
		} else if name, ok := strings.CutPrefix(line, "[-]"); ok {
			failed = append(failed, strings.Fields(name)[0])
		}
	}
	if response.StatusCode != http.StatusOK && len(failed) == 0 {
		return nil, nil, fmt.Errorf("/readyz answers %s", response.Status)
	}
	return passed, failed, nil
}

func whyUnreachable(err error) string {
	var invalid *tls.CertificateVerificationError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at its address (another network namespace?)"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &invalid):
		return "its certificate is not valid: " + oneLine(invalid.Err)
	}
	return oneLine(err)
}

func (r *Report) node(ctx context.Context, c client.Interface, name string, reachable bool) {
	if !reachable {
		r.part("node", Unknown, "the API server would know")
		return
	}
	node, err := client.Get[*corev1.Node](ctx, c, "", name)
	if err != nil {
		r.part("node", Bad, oneLine(err))
		return
	}
	health, text := Bad, name+" is not Ready"
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status == corev1.ConditionTrue {
			health, text = Fine, name+" is Ready"
		} else {
			text = fmt.Sprintf("%s is not Ready: %s", name, condition.Message)
		}
	}
	if node.Spec.Unschedulable {
		text += ", and cordoned"
	}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			r.Address = address.Address
			break
		}
	}
	r.part("node", health, text)
}

// count counts pods and nodes. A node's identity only sees its own pods.
func (r *Report) count(ctx context.Context, c client.Interface, record *clusters.Record) {
	options := metav1.ListOptions{ResourceVersion: "0"}
	if !record.HasServer() {
		options.FieldSelector = "spec.nodeName=" + record.NodeName
	}
	pods, err := c.List(ctx, corev1.SchemeGroupVersion.WithResource("pods"), "", options)
	if list, ok := pods.(*corev1.PodList); ok && err == nil {
		r.Pods = &Pods{Total: len(list.Items)}
		for i := range list.Items {
			switch list.Items[i].Status.Phase {
			case corev1.PodRunning:
				r.Pods.Running++
			case corev1.PodSucceeded:
				r.Pods.Succeeded++
			case corev1.PodFailed:
				r.Pods.Failed++
			default:
				r.Pods.Pending++
			}
		}
	}
	if !record.HasServer() {
		return
	}
	nodes, err := c.List(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "", metav1.ListOptions{ResourceVersion: "0"})
	if list, ok := nodes.(*corev1.NodeList); ok && err == nil {
		r.Nodes = &Nodes{Total: len(list.Items)}
		for i := range list.Items {
			for _, condition := range list.Items[i].Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					r.Nodes.Ready++
				}
			}
		}
	}
}

// runtimePart reads the container runtime's own conditions.
func runtimePart(ctx context.Context, record *clusters.Record) Part {
	p := Part{Name: "container runtime", Health: Bad}
	endpoint := record.RuntimeEndpoint
	if endpoint == "" {
		endpoint = filepath.Join(record.RunDir, "containerd.sock")
		if conn, err := net.Dial("unix", endpoint); err != nil {
			p.Text = oneLine(err)
			if errors.Is(err, os.ErrPermission) {
				p.Health, p.Text = Unknown, "only root may look: try sudo"
			}
			return p
		} else {
			_ = conn.Close()
		}
	}
	services, err := cri.Connect(ctx, endpoint, cri.Options{})
	if err != nil {
		p.Text = oneLine(err)
		return p
	}
	defer services.Close(context.WithoutCancel(ctx))
	version, err := services.Runtime.Version(ctx, "v1")
	if err != nil {
		p.Text = oneLine(err)
		return p
	}
	p.Text = version.RuntimeName + " " + strings.TrimPrefix(version.RuntimeVersion, "v")
	status, err := services.Runtime.Status(ctx, false)
	if err != nil {
		p.Text += ": " + oneLine(err)
		return p
	}
	p.Health = Fine
	for _, condition := range status.Status.Conditions {
		if (condition.Type == runtimeapi.RuntimeReady || condition.Type == runtimeapi.NetworkReady) && !condition.Status {
			p.Health = Bad
			p.Text += fmt.Sprintf(", not %s: %s", condition.Type, condition.Message)
		}
	}
	return p
}
