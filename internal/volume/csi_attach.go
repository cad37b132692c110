package volume

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// attachPeriod is the interval for reading an attachment; it grows up to a second.
const attachPeriod = 50 * time.Millisecond

// attached waits until the cluster has attached the volume, and returns the attachment's metadata.
func (m *Manager) attached(ctx context.Context, v *csiVolume) (map[string]string, error) {
	if v.persistent == nil || v.object != nil && v.object.Spec.AttachRequired != nil && !*v.object.Spec.AttachRequired {
		return nil, nil
	}
	sum := sha256.Sum256([]byte(v.handle + v.driver.name + m.NodeName))
	name := fmt.Sprintf("csi-%x", sum)
	waiting, cancel := context.WithTimeout(ctx, csiTimeout/2)
	defer cancel()
	for period := attachPeriod; ; period = min(2*period, time.Second) {
		attachment, err := client.Get[*storagev1.VolumeAttachment](waiting, m.Client, "", name)
		if err == nil && attachment.Status.Attached && attachment.DeletionTimestamp == nil {
			v.data.AttachmentID = name
			return attachment.Status.AttachmentMetadata, nil
		}
		problem := attachProblem(attachment, err)
		if err == nil && attachment.Status.AttachError != nil {
			if code := attachment.Status.AttachError.ErrorCode; code != nil && *code == int32(codes.ResourceExhausted) {
				m.CSI.exhaust(v.driver.name)
			}
			return nil, problem
		}
		select {
		case <-waiting.Done():
			return nil, problem
		case <-time.After(period):
		}
	}
}

// attachProblem says why an attachment cannot be used yet.
func attachProblem(attachment *storagev1.VolumeAttachment, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("the volume is not attached to this node yet: %w", err)
	case attachment.DeletionTimestamp != nil:
		return fmt.Errorf("the volume is being detached from this node (VolumeAttachment %s)", attachment.Name)
	case attachment.Status.AttachError != nil:
		return fmt.Errorf("the volume is not attached to this node: %s", attachment.Status.AttachError.Message)
	}
	return fmt.Errorf("the volume is not attached to this node yet (VolumeAttachment %s)", attachment.Name)
}
