package images

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// store is an image service with one unused image.
type store struct {
	internalapi.ImageManagerService
	path    string
	removed int
}

func (s *store) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return []*runtimeapi.Image{{Id: "unused", Size: 1 << 50}}, nil
}

func (s *store) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.path}}}}, nil
}

func (s *store) RemoveImage(context.Context, *runtimeapi.ImageSpec) error {
	s.removed++
	return nil
}

func TestImagesAreRemovedAboveTheHighThreshold(t *testing.T) {
	for name, test := range map[string]struct{ high, removed int }{
		"the disk is fuller than the threshold": {0, 1},
		"a threshold of 100 keeps all images":   {100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{path: t.TempDir()}
			// A filesystem in memory may be empty otherwise.
			if err := os.WriteFile(filepath.Join(s.path, "content"), make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			now := time.Unix(0, 0)
			c := &Collector{Images: s, High: test.high, Now: func() time.Time { return now }, InUse: func(context.Context) (map[string]bool, error) { return nil, nil }}
			for range 2 { // new images are kept
				if err := c.Collect(t.Context()); err != nil && s.removed == 1 {
					t.Fatal(err)
				}
				now = now.Add(2 * minAge)
			}
			if s.removed != test.removed {
				t.Errorf("%d images removed, want %d", s.removed, test.removed)
			}
		})
	}
}
