package image

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	streamingapi "github.com/containerd/containerd/api/services/streaming/v1"
	transferapi "github.com/containerd/containerd/api/services/transfer/v1"
	"github.com/containerd/containerd/api/types"
	transfertypes "github.com/containerd/containerd/api/types/transfer"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// chunk is the maximum content of one message in containerd's stream protocol.
const chunk = 32 << 10

// transfer sends a tar through containerd's stream protocol to its transfer service. The service
// stores the content, unpacks new layers, and records the names from the index's annotations.
func (c *Client) transfer(ctx context.Context, archive io.Reader) (err error) {
	ctx, done, err := c.leased(ctx)
	if err != nil {
		return err
	}
	// After an error, wait until the part that containerd has is collected.
	defer func() { done(err != nil) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id := "knarr-" + rand.Text()
	stream, err := c.openStream(ctx, id)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		err := send(stream, archive)
		if err != nil {
			cancel() // otherwise containerd would take the part it has for the whole archive
		}
		sent <- err
	}()
	os, architecture := platform()
	here := &types.Platform{OS: os, Architecture: architecture}
	source, err := message(&transfertypes.ImageImportStream{Stream: id, MediaType: "application/x-tar"})
	if err != nil {
		return err
	}
	destination, err := message(&transfertypes.ImageStore{
		Platforms: []*types.Platform{here},
		Unpacks:   []*transfertypes.UnpackConfiguration{{Platform: here}},
		// The annotations contain the full names, so the prefix is never used. But containerd
		// ignores the names without a prefix.
		ExtraReferences: []*transfertypes.ImageReference{{Name: "docker.io/library/unnamed", IsPrefix: true, AllowOverwrite: true}},
	})
	if err != nil {
		return err
	}
	_, err = c.transfers.Transfer(ctx, &transferapi.TransferRequest{Source: source, Destination: destination})
	cancel()
	if sendErr := <-sent; sendErr != nil && !errors.Is(sendErr, context.Canceled) {
		return sendErr
	}
	return err
}

// leaseHeader names the lease for everything that a call creates.
const leaseHeader = "containerd-lease"

// leaseLife is the lifetime of a lease whose owner was killed.
const leaseLife = 24 * time.Hour

// leased keeps containerd's garbage collector from removing content and streams that are created
// under the context, until done is called. With wait, done returns after the collection. Without a
// lease, a stream in a namespace without content counts as garbage, and the collector runs soon
// after containerd's start.
func (c *Client) leased(ctx context.Context) (_ context.Context, done func(wait bool), err error) {
	ctx = inNamespace(ctx)
	created, err := c.leases.Create(ctx, &leasesapi.CreateRequest{
		ID: "knarr-" + rand.Text(), Labels: map[string]string{"containerd.io/gc.expire": time.Now().Add(leaseLife).UTC().Format(time.RFC3339)},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("lease: %w", err)
	}
	return metadata.AppendToOutgoingContext(ctx, leaseHeader, created.Lease.ID), func(wait bool) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		// After an error the lease expires.
		_, _ = c.leases.Delete(ctx, &leasesapi.DeleteRequest{ID: created.Lease.ID, Sync: wait})
	}, nil
}

// openStream registers a stream under an id, which a transfer refers to.
func (c *Client) openStream(ctx context.Context, id string) (streamingapi.Streaming_StreamClient, error) {
	stream, err := c.streams.Stream(ctx)
	if err != nil {
		return nil, err
	}
	first, err := message(&streamingapi.StreamInit{ID: id})
	if err != nil {
		return nil, err
	}
	if err := stream.Send(first); err != nil {
		return nil, err
	}
	if _, err := stream.Recv(); err != nil { // the acknowledgement
		return nil, err
	}
	return stream, nil
}

// send copies the archive into the stream within the receiver's window. An error is the archive's.
// If the receiver ends the stream early, the transfer's own result contains the reason.
func send(stream streamingapi.Streaming_StreamClient, archive io.Reader) error {
	buffer := make([]byte, chunk)
	window := 0
	for {
		for window <= 0 {
			received, err := stream.Recv()
			if err != nil {
				return nil
			}
			var update transfertypes.WindowUpdate
			if err := proto.Unmarshal(received.GetValue(), &update); err != nil {
				return fmt.Errorf("read containerd's window update: %w", err)
			}
			window += int(update.Update)
		}
		n, readErr := io.ReadFull(archive, buffer[:min(chunk, window)])
		if n > 0 {
			window -= n
			data, err := message(&transfertypes.Data{Data: buffer[:n]})
			if err != nil {
				return err
			}
			if stream.Send(data) != nil {
				return nil
			}
		}
		if errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) {
			_ = stream.CloseSend()
			return nil
		}
		if readErr != nil {
			return readErr
		}
	}
}

// message wraps the content under the bare type name. containerd finds types by that name, without
// "type.googleapis.com/".
func message(content proto.Message) (*anypb.Any, error) {
	value, err := proto.Marshal(content)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: string(content.ProtoReflect().Descriptor().FullName()), Value: value}, nil
}
