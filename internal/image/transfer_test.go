package image

import (
	"bytes"
	"context"
	"io"
	"testing"

	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
)

// leaseRecorder records the existing leases when it is first read.
type leaseRecorder struct {
	io.Reader
	look  func() []*leasesapi.Lease
	found []*leasesapi.Lease
	read  bool
}

func (w *leaseRecorder) Read(p []byte) (int, error) {
	if !w.read {
		w.read, w.found = true, w.look()
	}
	return w.Reader.Read(p)
}

// A collection between the registration of the stream and the transfer would remove the stream.
func TestATransferHoldsALeaseUntilItEnds(t *testing.T) {
	client, _ := startRuntime(t, nil)
	leases := func() []*leasesapi.Lease {
		found, err := client.leases.List(inNamespace(context.Background()), &leasesapi.ListRequest{})
		if err != nil {
			t.Error(err)
			return nil
		}
		return found.Leases
	}
	var archive bytes.Buffer
	if err := WriteArchive(&archive, randomImage(t, 1), "leased:1"); err != nil {
		t.Fatal(err)
	}
	w := &leaseRecorder{Reader: &archive, look: leases}
	if err := client.transfer(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if len(w.found) != 1 || w.found[0].Labels["containerd.io/gc.expire"] == "" {
		t.Errorf("while it ran: %v", w.found)
	}
	if left := leases(); len(left) != 0 {
		t.Errorf("afterwards: %v", left)
	}
}
