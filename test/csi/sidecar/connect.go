package sidecar

import (
	"context"
	"flag"
	"fmt"
	"log"
	"slices"
	"strings"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

// Options are the flags of the programs.
type Options struct {
	Address          string
	RegistrationPath string
	HealthPort       int
	FSType           string
	Timeout          time.Duration
	Workers          int
}

// Flags adds the options to a set of flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.StringVar(&o.Address, "csi-address", "/csi/csi.sock", "socket of the driver")
	f.StringVar(&o.RegistrationPath, "kubelet-registration-path", "", "path of the driver's socket on the node")
	f.IntVar(&o.HealthPort, "health-port", 9808, "port of /healthz")
	f.StringVar(&o.FSType, "default-fstype", "", "file system of volumes whose class names none")
	f.DurationVar(&o.Timeout, "timeout", 15*time.Second, "limit of a call to the driver")
	f.IntVar(&o.Workers, "worker-threads", 10, "number of claims or volumes that are worked on at once")
	f.String("feature-gates", "", "ignored: what the tests need is always on")
	f.Bool("leader-election", false, "ignored: there is one process")
	f.Int("v", 0, "ignored")
}

// driver is the connection to a CSI driver.
type driver struct {
	*grpc.ClientConn
	Options
	name string
	// services are what the driver offers; controller and node list the capabilities of two.
	services   []csispec.PluginCapability_Service_Type
	controller []csispec.ControllerServiceCapability_RPC_Type
}

// dial connects to the driver and waits until it answers.
func dial(ctx context.Context, o Options) (*driver, error) {
	address := o.Address
	if !strings.HasPrefix(address, "unix:") {
		address = "unix://" + address
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	d := &driver{ClientConn: connection, Options: o}
	for {
		if err = d.ask(ctx); err == nil {
			return d, nil
		}
		log.Println("the driver does not answer yet:", err)
		select {
		case <-ctx.Done():
			connection.Close()
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// ask reads the driver's name and capabilities.
func (d *driver) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	identity := csispec.NewIdentityClient(d)
	info, err := identity.GetPluginInfo(ctx, &csispec.GetPluginInfoRequest{})
	if err != nil {
		return err
	}
	d.name = info.Name
	services, err := identity.GetPluginCapabilities(ctx, &csispec.GetPluginCapabilitiesRequest{})
	if err != nil {
		return err
	}
	for _, s := range services.Capabilities {
		d.services = append(d.services, s.GetService().GetType())
	}
	if !slices.Contains(d.services, csispec.PluginCapability_Service_CONTROLLER_SERVICE) {
		return nil
	}
	capabilities, err := csispec.NewControllerClient(d).ControllerGetCapabilities(ctx, &csispec.ControllerGetCapabilitiesRequest{})
	if err != nil {
		return err
	}
	for _, c := range capabilities.Capabilities {
		d.controller = append(d.controller, c.GetRpc().GetType())
	}
	return nil
}

// can reports whether the controller has a capability.
func (d *driver) can(kind csispec.ControllerServiceCapability_RPC_Type) bool {
	return slices.Contains(d.controller, kind)
}

// cluster is the connection to the API server.
type cluster struct {
	kubernetes.Interface
	dynamic   dynamic.Interface
	informers informers.SharedInformerFactory
	events    record.EventRecorder
}

func newCluster(source string) (*cluster, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 50, 100
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	return &cluster{
		Interface: clients, dynamic: objects, informers: informers.NewSharedInformerFactory(clients, 0),
		events: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: source}),
	}, nil
}

// key names an object that needs work. A claim has a namespace, a volume none.
type key struct{ namespace, name string }

// work calls reconcile for each key that an informer's event gives, until ctx ends. A failed call
// is repeated after a second, and later each time.
func (c *cluster) work(ctx context.Context, workers int, keys map[cache.SharedIndexInformer]func(any) []key, reconcile func(context.Context, key) error) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](time.Second, 5*time.Minute))
	defer queue.ShutDown()
	for informer, of := range keys {
		add := func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			for _, k := range of(object) {
				queue.Add(k)
			}
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, object any) { add(object) }, DeleteFunc: add})
		if err != nil {
			return err
		}
	}
	c.informers.Start(ctx.Done())
	c.informers.WaitForCacheSync(ctx.Done())
	for range workers {
		go func() {
			for {
				k, stopped := queue.Get()
				if stopped {
					return
				}
				if err := reconcile(ctx, k); err != nil {
					log.Println(k.namespace+"/"+k.name+":", err)
					queue.AddRateLimited(k)
				} else {
					queue.Forget(k)
				}
				queue.Done(k)
			}
		}()
	}
	<-ctx.Done()
	return nil
}

// keyOf is the key of an object itself.
func keyOf(object any) []key {
	meta, ok := object.(metav1.Object)
	if !ok {
		return nil
	}
	return []key{{meta.GetNamespace(), meta.GetName()}}
}

// secretOf returns the secret that a class's parameters name with a prefix, or nil. Names may have
// variables of the claim and the volume.
func secretOf(parameters map[string]string, kind, volume string, claim *corev1.PersistentVolumeClaim) (*corev1.SecretReference, error) {
	const prefix = "csi.storage.k8s.io/"
	name, namespace := parameters[prefix+kind+"-secret-name"], parameters[prefix+kind+"-secret-namespace"]
	if name == "" && namespace == "" {
		return nil, nil
	}
	replace := strings.NewReplacer("${pv.name}", volume, "${pvc.name}", claim.Name, "${pvc.namespace}", claim.Namespace)
	name, namespace = replace.Replace(name), replace.Replace(namespace)
	if name == "" || namespace == "" || strings.Contains(name+namespace, "$") {
		return nil, fmt.Errorf("%s%s-secret-name is %q and -namespace %q: want both, with no other variables than pv.name, pvc.name, pvc.namespace", prefix, kind, name, namespace)
	}
	return &corev1.SecretReference{Namespace: namespace, Name: name}, nil
}

// secret reads a secret's content.
func (c *cluster) secret(ctx context.Context, reference *corev1.SecretReference) (map[string]string, error) {
	if reference == nil {
		return nil, nil
	}
	secret, err := c.CoreV1().Secrets(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	content := map[string]string{}
	for name, value := range secret.Data {
		content[name] = string(value)
	}
	return content, nil
}

// capability describes how a claim's volume is used.
func capability(modes []corev1.PersistentVolumeAccessMode, block bool, fsType string, options []string) *csispec.VolumeCapability {
	mode := csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	switch {
	case slices.Contains(modes, corev1.ReadWriteMany):
		mode = csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case slices.Contains(modes, corev1.ReadOnlyMany):
		mode = csispec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	}
	out := &csispec.VolumeCapability{AccessMode: &csispec.VolumeCapability_AccessMode{Mode: mode}}
	if block {
		out.AccessType = &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}}
	} else {
		out.AccessType = &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{FsType: fsType, MountFlags: options}}
	}
	return out
}

// checkAttributes returns an error if a VolumeAttributesClass is of another driver.
func (d *driver) checkAttributes(class, by string) error {
	if by != d.name {
		return fmt.Errorf("VolumeAttributesClass %s is of driver %s, want %s", class, by, d.name)
	}
	return nil
}

func isBlock(mode *corev1.PersistentVolumeMode) bool {
	return mode != nil && *mode == corev1.PersistentVolumeBlock
}
