package volume

import (
	"context"
	"fmt"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/knarr-project/knarr/internal/client"
)

// limitPeriod is the interval for looking which drivers want their limits to be read again. It is
// the smallest value of nodeAllocatableUpdatePeriodSeconds.
const limitPeriod = 10 * time.Second

// limitOf returns the number of volumes that the driver can attach to this node, or nil.
func limitOf(info *csispec.NodeGetInfoResponse) *storagev1.VolumeNodeResources {
	if info.MaxVolumesPerNode <= 0 {
		return nil
	}
	count := int32(min(info.MaxVolumesPerNode, 1<<31-1))
	return &storagev1.VolumeNodeResources{Count: &count}
}

// refreshLimits reads the limits of drivers again whose CSIDriver asks for it
// (nodeAllocatableUpdatePeriodSeconds).
func (c *CSI) refreshLimits(ctx context.Context) {
	c.mu.Lock()
	due := map[string]time.Duration{}
	for name, driver := range c.drivers {
		due[name] = time.Since(driver.refreshed)
	}
	c.mu.Unlock()
	for name, age := range due {
		object, err := client.Get[*storagev1.CSIDriver](ctx, c.Client, "", name)
		if err != nil || object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
			continue
		}
		// Half a period early: the next look would be too late.
		if age >= time.Duration(*object.Spec.NodeAllocatableUpdatePeriodSeconds)*time.Second-limitPeriod/2 {
			c.refreshLimit(ctx, name)
		}
	}
}

// refreshLimit asks the driver for its limit and writes it to the CSINode.
func (c *CSI) refreshLimit(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	driver, err := c.driver(name)
	if err != nil {
		return
	}
	c.mu.Lock()
	driver.refreshed = time.Now()
	c.mu.Unlock()
	info, err := driver.node.NodeGetInfo(ctx, &csispec.NodeGetInfoRequest{})
	if err == nil {
		err = c.writeLimit(ctx, name, limitOf(info))
	}
	if err != nil && ctx.Err() == nil {
		c.Log.Warn("cannot refresh the volume limit of a CSI driver", "driver", name, "error", err)
	}
}

func (c *CSI) writeLimit(ctx context.Context, name string, limit *storagev1.VolumeNodeResources) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	node, err := client.Get[*storagev1.CSINode](ctx, c.Client, "", c.NodeName)
	if err != nil {
		return fmt.Errorf("read CSINode: %w", err)
	}
	for i := range node.Spec.Drivers {
		if node.Spec.Drivers[i].Name == name && equality.Semantic.DeepEqual(node.Spec.Drivers[i].Allocatable, limit) {
			return nil
		}
	}
	return c.updateCSINode(ctx, func(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
		for i := range drivers {
			if drivers[i].Name == name {
				drivers[i].Allocatable = limit
			}
		}
		return drivers
	})
}

// noteExhausted has the driver's limit read again if err says that the node has no room for another
// volume. The scheduler then places the next pod elsewhere.
func (c *CSI) noteExhausted(driver string, err error) {
	if status.Code(err) == codes.ResourceExhausted {
		c.exhaust(driver)
	}
}

func (c *CSI) exhaust(driver string) {
	select {
	case c.exhausted <- driver:
	default: // a refresh is about to happen
	}
}
