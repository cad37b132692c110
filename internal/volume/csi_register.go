package volume

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/knarr-project/knarr/internal/client"
)

// registerTimeout limits changes of the CSINode.
const registerTimeout = 30 * time.Second

// nodeIDAnnotation holds the node's ids as known to the drivers: JSON, by driver name.
const nodeIDAnnotation = "csi.volume.kubernetes.io/nodeid"

// Run closes the connections to the drivers when ctx ends. Until then it keeps the CSINode current:
// it reads drivers' limits again, and removes drivers that could not be removed at once. It also
// unstages volumes that could not be unstaged at once.
func (c *CSI) Run(ctx context.Context) error {
	defer c.closeAll()
	var unstaging sync.WaitGroup
	defer unstaging.Wait()
	var busy atomic.Bool // a driver may hang
	limits := time.NewTicker(limitPeriod)
	defer limits.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-limits.C:
			c.refreshLimits(ctx)
			c.removeGone(ctx)
			if busy.CompareAndSwap(false, true) {
				unstaging.Go(func() {
					defer busy.Store(false)
					c.unstageAll(ctx)
				})
			}
		case name := <-c.exhausted:
			c.refreshLimit(ctx, name)
		}
	}
}

func (c *CSI) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, driver := range c.drivers {
		driver.connection.Close()
	}
	clear(c.drivers)
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

// RegisterDriver starts to use a driver. socket is the path of its registration socket, endpoint of
// its service. A driver of the same name is replaced.
func (c *CSI) RegisterDriver(ctx context.Context, name, endpoint, socket string, versions []string) error {
	if err := checkDriverName(name); err != nil {
		return err
	}
	if !slices.ContainsFunc(versions, func(version string) bool { return strings.HasPrefix(strings.TrimPrefix(version, "v"), "1.") }) {
		return fmt.Errorf("driver %s supports CSI versions %v, this node 1.x", name, versions)
	}
	driver, node, err := dialCSI(ctx, name, endpoint)
	if err != nil {
		return err
	}
	driver.socket, driver.refreshed = socket, time.Now()
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.publish(ctx, driver, node); err != nil {
		driver.connection.Close()
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if older := c.drivers[name]; older != nil {
		older.connection.Close()
	}
	c.drivers[name] = driver
	delete(c.gone, name)
	c.Log.Info("CSI driver registered", "driver", name, "nodeID", driver.nodeID)
	return nil
}

// DeregisterDriver forgets the driver of a registration socket. Volumes that it has mounted stay
// until it is back. If ctx has ended, the node agent stops, and the CSINode keeps the driver.
func (c *CSI) DeregisterDriver(ctx context.Context, name, socket string) {
	c.mu.Lock()
	driver := c.drivers[name]
	if driver == nil || driver.socket != socket {
		c.mu.Unlock()
		return // a newer socket of the driver has taken over
	}
	driver.connection.Close()
	delete(c.drivers, name)
	c.gone[name] = true
	c.mu.Unlock()
	c.removeGone(ctx)
}

// removeGone removes deregistered drivers from the CSINode. Run repeats what fails.
func (c *CSI) removeGone(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	gone := maps.Clone(c.gone)
	c.mu.Unlock()
	if len(gone) == 0 || ctx.Err() != nil {
		return
	}
	err := c.updateCSINode(ctx, func(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
		return slices.DeleteFunc(drivers, func(driver storagev1.CSINodeDriver) bool { return gone[driver.Name] })
	})
	if err != nil {
		if ctx.Err() == nil {
			c.Log.Warn("cannot deregister CSI drivers; trying again", "error", err)
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range gone {
		delete(c.gone, name)
	}
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
