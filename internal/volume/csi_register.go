package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/knarr-project/knarr/internal/client"
)

const (
	// registerTimeout limits the registration of one plugin.
	registerTimeout = 30 * time.Second
	// maxSockets limits the number of plugins.
	maxSockets = 256
)

// nodeIDAnnotation holds the node's ids as known to the drivers: JSON, by driver name.
const nodeIDAnnotation = "csi.volume.kubernetes.io/nodeid"

// Run registers drivers whose sockets appear in RegistrationDir and deregisters drivers whose
// sockets disappear, until ctx ends.
func (c *CSI) Run(ctx context.Context) error {
	dir := c.RegistrationDir()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("watch for CSI drivers: %w", err)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch for CSI drivers: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(dir); err != nil {
		return fmt.Errorf("watch for CSI drivers: %w", err)
	}
	defer c.closeAll()
	limits := time.NewTicker(limitPeriod)
	defer limits.Stop()
	// A driver may listen a moment after its socket appears.
	const firstDelay = 100 * time.Millisecond
	var retry <-chan time.Time
	for delay := firstDelay; ; {
		if c.scan(ctx) {
			retry, delay = nil, firstDelay
		} else {
			retry, delay = time.After(delay), min(2*delay, 10*time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-retry:
		case <-watcher.Events:
		case <-limits.C:
			c.refreshLimits(ctx)
		case name := <-c.exhausted:
			c.refreshLimit(ctx, name)
		case err := <-watcher.Errors:
			c.Log.Warn("watching for CSI drivers", "error", err)
		}
	}
}

// socketID tells a socket from a later one of the same path.
type socketID struct {
	path     string
	inode    uint64
	modified time.Time
}

// sockets lists the registration sockets.
func (c *CSI) sockets() []socketID {
	entries, err := os.ReadDir(c.RegistrationDir())
	if err != nil {
		return nil
	}
	var found []socketID
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || info.Mode().Type() != fs.ModeSocket || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		id := socketID{path: filepath.Join(c.RegistrationDir(), entry.Name()), modified: info.ModTime()}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			id.inode = stat.Ino
		}
		found = append(found, id)
	}
	return found[:min(len(found), maxSockets)]
}

func (c *CSI) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, driver := range c.drivers {
		driver.connection.Close()
	}
	clear(c.drivers)
}

// scan compares the existing sockets with the registered drivers. It returns false if it must be
// repeated.
func (c *CSI) scan(ctx context.Context) bool {
	sockets := c.sockets()
	known := map[socketID]string{} // socket → driver
	c.mu.Lock()
	for name, driver := range c.drivers {
		known[driver.socket] = name
	}
	c.mu.Unlock()
	var failed atomic.Bool
	fail := func(problem, about string, err error) {
		if err != nil && ctx.Err() == nil {
			c.Log.Warn(problem, "plugin", about, "error", err)
			failed.Store(true)
		}
	}
	var asking sync.WaitGroup // a plugin that hangs delays this scan only by its deadline
	for _, socket := range sockets {
		if _, registered := known[socket]; registered {
			delete(known, socket)
			continue
		}
		asking.Go(func() { fail("cannot register plugin", socket.path, c.register(ctx, socket)) })
	}
	asking.Wait()
	for socket, name := range known {
		fail("cannot deregister CSI driver", name, c.deregister(ctx, name, socket))
	}
	return !failed.Load()
}

// register speaks the plugin registration protocol. It ignores plugins that are not CSI drivers.
func (c *CSI) register(ctx context.Context, socket socketID) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	connection, err := dialSocket(socket.path)
	if err != nil {
		return err
	}
	defer connection.Close()
	registration := registerapi.NewRegistrationClient(connection)
	info, err := registration.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return fmt.Errorf("GetInfo: %w", err)
	}
	if info.Type != registerapi.CSIPlugin {
		return nil
	}
	result := &registerapi.RegistrationStatus{PluginRegistered: true}
	if err = c.accept(ctx, socket, info); err != nil {
		result = &registerapi.RegistrationStatus{Error: err.Error()}
	}
	_, notifyErr := registration.NotifyRegistrationStatus(ctx, result)
	return errors.Join(err, notifyErr)
}

// checkDriverName returns an error for names that CSI does not allow. Names become parts of paths.
func checkDriverName(name string) error {
	if len(name) > 63 {
		return fmt.Errorf("CSI driver name %q has more than 63 characters", name)
	}
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(name)); len(problems) > 0 {
		return fmt.Errorf("CSI driver name %q: %s", name, problems[0])
	}
	return nil
}

func (c *CSI) accept(ctx context.Context, socket socketID, info *registerapi.PluginInfo) error {
	if err := checkDriverName(info.Name); err != nil {
		return err
	}
	if !slices.ContainsFunc(info.SupportedVersions, func(version string) bool { return strings.HasPrefix(strings.TrimPrefix(version, "v"), "1.") }) {
		return fmt.Errorf("driver %s supports CSI versions %v, this node 1.x", info.Name, info.SupportedVersions)
	}
	endpoint := info.Endpoint
	if endpoint == "" {
		endpoint = socket.path
	}
	if !filepath.IsAbs(endpoint) {
		return fmt.Errorf("driver %s: endpoint %q is not an absolute path", info.Name, endpoint)
	}
	driver, node, err := dialCSI(ctx, info.Name, endpoint)
	if err != nil {
		return err
	}
	driver.socket, driver.refreshed = socket, time.Now()
	if err := c.publish(ctx, driver, node); err != nil {
		driver.connection.Close()
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if older := c.drivers[driver.name]; older != nil {
		older.connection.Close()
	}
	c.drivers[driver.name] = driver
	c.Log.Info("CSI driver registered", "driver", driver.name, "nodeID", driver.nodeID)
	return nil
}

// deregister forgets the driver of a socket. Volumes that it has mounted stay until it is back.
func (c *CSI) deregister(ctx context.Context, name string, socket socketID) error {
	c.mu.Lock()
	driver := c.drivers[name]
	if driver == nil || driver.socket != socket {
		c.mu.Unlock()
		return nil // a newer socket of the driver has taken over
	}
	c.mu.Unlock()
	err := c.updateCSINode(ctx, func(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
		return slices.DeleteFunc(drivers, func(driver storagev1.CSINodeDriver) bool { return driver.Name == name })
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drivers[name] == driver {
		driver.connection.Close()
		delete(c.drivers, name)
	}
	return nil
}

// publish writes the driver to the API. The Node gets the driver's topology as labels and its node
// id as an annotation. The CSINode, which schedulers and controllers read, gets both.
func (c *CSI) publish(ctx context.Context, driver *csiDriver, info *csispec.NodeGetInfoResponse) error {
	node, err := client.Get[*corev1.Node](ctx, c.Client, "", c.NodeName)
	if err != nil {
		return fmt.Errorf("read node: %w", err)
	}
	ids := map[string]string{}
	// An invalid annotation is replaced.
	_ = json.Unmarshal([]byte(node.Annotations[nodeIDAnnotation]), &ids)
	ids[driver.name] = info.NodeId
	annotation, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	topology := info.AccessibleTopology.GetSegments()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{nodeIDAnnotation: string(annotation)}, "labels": topology}})
	if err != nil {
		return err
	}
	if _, err := client.Patch[*corev1.Node](ctx, c.Client, "", c.NodeName, types.MergePatchType, patch); err != nil {
		return fmt.Errorf("update node: %w", err)
	}
	entry := storagev1.CSINodeDriver{Name: driver.name, NodeID: info.NodeId, TopologyKeys: slices.Sorted(maps.Keys(topology)), Allocatable: limitOf(info)}
	return c.updateCSINode(ctx, func(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
		for i := range drivers {
			if drivers[i].Name == entry.Name {
				drivers[i] = entry
				return drivers
			}
		}
		return append(drivers, entry)
	})
}

// updateCSINode changes this node's CSINode, or creates it.
func (c *CSI) updateCSINode(ctx context.Context, change func([]storagev1.CSINodeDriver) []storagev1.CSINodeDriver) error {
	for attempt := 0; ; attempt++ {
		err := c.tryUpdateCSINode(ctx, change)
		if err == nil || attempt == 5 || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			if err != nil {
				return fmt.Errorf("update CSINode: %w", err)
			}
			return nil
		}
	}
}

func (c *CSI) tryUpdateCSINode(ctx context.Context, change func([]storagev1.CSINodeDriver) []storagev1.CSINodeDriver) error {
	current, err := client.Get[*storagev1.CSINode](ctx, c.Client, "", c.NodeName)
	if err == nil {
		current = current.DeepCopy()
		current.Spec.Drivers = change(current.Spec.Drivers)
		_, err = client.Update(ctx, c.Client, current)
		return err
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	node, err := client.Get[*corev1.Node](ctx, c.Client, "", c.NodeName)
	if err != nil {
		return err
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	_, err = client.Create(ctx, c.Client, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: c.NodeName, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec:       storagev1.CSINodeSpec{Drivers: change(nil)},
	})
	return err
}
