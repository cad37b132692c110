package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/raft/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/knarr-project/knarr/internal/store"
)

// bounds returns the first key and the end (exclusive) of the keys below prefix, starting at from.
// An empty end means the end of all keys. If from is beyond the prefix, the range is empty.
func bounds(prefix, from string) (first, end []byte) {
	first, end = []byte(prefix), []byte{}
	if prefix == "" {
		first = []byte{0}
	} else if e := clientv3.GetPrefixRangeEnd(prefix); e != "\x00" {
		end = []byte(e)
	}
	if from > prefix {
		first = []byte(from)
		if len(end) > 0 && from >= string(end) {
			// [end, end + "\x00") would contain the key end itself, so use the empty range [end,
			// end).
			first = end
		}
	}
	return first, end
}

func keyValue(kv *mvccpb.KeyValue) store.KeyValue {
	return store.KeyValue{
		Key:            string(kv.Key),
		Value:          kv.Value,
		CreateRevision: kv.CreateRevision,
		ModRevision:    kv.ModRevision,
		Lease:          store.LeaseID(kv.Lease),
	}
}

func event(t mvccpb.Event_EventType, kv *mvccpb.KeyValue) store.Event {
	if t == mvccpb.DELETE {
		return store.Event{Type: store.Deleted, KV: store.KeyValue{Key: string(kv.Key), ModRevision: kv.ModRevision}}
	}
	return store.Event{Type: store.Put, KV: keyValue(kv)}
}

// txnRequest translates the transaction: if all conditions hold, do the ops, else read the
// conditions' keys.
func txnRequest(conditions []store.Condition, ops []store.Op) *pb.TxnRequest {
	req := &pb.TxnRequest{
		Compare: make([]*pb.Compare, len(conditions)),
		Success: make([]*pb.RequestOp, len(ops)),
		Failure: make([]*pb.RequestOp, len(conditions)),
	}
	for i, c := range conditions {
		key := []byte(c.Key)
		req.Compare[i] = &pb.Compare{
			Result: pb.Compare_EQUAL, Target: pb.Compare_MOD, Key: key,
			TargetUnion: &pb.Compare_ModRevision{ModRevision: c.ModRevision},
		}
		req.Failure[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}
	}
	for i, op := range ops {
		if op.Delete {
			req.Success[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
				RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(op.Key)},
			}}
			continue
		}
		req.Success[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: []byte(op.Key), Value: op.Value, Lease: int64(op.Lease)},
		}}
	}
	return req
}

func txnResult(resp *pb.TxnResponse, conditions []store.Condition) store.TxnResult {
	out := store.TxnResult{Succeeded: resp.Succeeded, Revision: resp.Header.Revision}
	if resp.Succeeded {
		return out
	}
	out.Current = make([]*store.KeyValue, len(conditions))
	for i := range conditions {
		if r := resp.Responses[i].GetResponseRange(); r != nil && len(r.Kvs) > 0 {
			kv := keyValue(r.Kvs[0])
			out.Current[i] = &kv
		}
	}
	return out
}

// describe names a transaction's first key, for errors.
func describe(conditions []store.Condition, ops []store.Op) string {
	switch {
	case len(ops) > 0:
		return ops[0].Key
	case len(conditions) > 0:
		return conditions[0].Key
	}
	return "an empty transaction"
}

// contractErrors maps etcd's errors, in process and over gRPC, to the contract's.
var contractErrors = []struct{ etcd, contract error }{
	{mvcc.ErrCompacted, store.ErrCompacted},
	{rpctypes.ErrCompacted, store.ErrCompacted},
	{mvcc.ErrFutureRev, store.ErrFutureRevision},
	{rpctypes.ErrFutureRev, store.ErrFutureRevision},
	{lease.ErrLeaseNotFound, store.ErrLeaseNotFound},
	{rpctypes.ErrLeaseNotFound, store.ErrLeaseNotFound},
	{etcderrors.ErrRequestTooLarge, store.ErrTooLarge},
	{rpctypes.ErrRequestTooLarge, store.ErrTooLarge},
	{etcderrors.ErrNoSpace, store.ErrNoSpace},
	{rpctypes.ErrNoSpace, store.ErrNoSpace},
	{etcderrors.ErrCorrupt, store.ErrUnavailable},
	{rpctypes.ErrCorrupt, store.ErrUnavailable},
	{etcderrors.ErrStopped, store.ErrUnavailable},
	{etcderrors.ErrTimeout, store.ErrUnavailable},
	{etcderrors.ErrTimeoutDueToLeaderFail, store.ErrUnavailable},
	{etcderrors.ErrTimeoutDueToConnectionLost, store.ErrUnavailable},
	{etcderrors.ErrTimeoutWaitAppliedIndex, store.ErrUnavailable},
	{etcderrors.ErrLeaderChanged, store.ErrUnavailable},
	{etcderrors.ErrNoLeader, store.ErrNotBegun},
	{etcderrors.ErrTooManyRequests, store.ErrNotBegun},
	{rpctypes.ErrNoLeader, store.ErrNotBegun},
	{rpctypes.ErrTooManyRequests, store.ErrNotBegun},
	{lease.ErrNotPrimary, store.ErrUnavailable},
	{raft.ErrStopped, store.ErrUnavailable},
	{raft.ErrProposalDropped, store.ErrNotBegun},
}

// translate turns an etcd error into one of the contract's and keeps its text. If ctx has ended, it
// returns ctx's error.
func translate(ctx context.Context, err error) error {
	if ctxErr := ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	for _, m := range contractErrors {
		if errors.Is(err, m.etcd) {
			return wrap(m.contract, err)
		}
	}
	// Errors over gRPC are distinct values with the same text as rpctypes' errors.
	var remote rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &remote) {
		for _, m := range contractErrors {
			if m.etcd == error(remote) {
				return wrap(m.contract, err)
			}
		}
		if remote.Code() == codes.Unavailable || remote.Code() == codes.DeadlineExceeded {
			return wrap(store.ErrUnavailable, err)
		}
	}
	switch status.Code(err) {
	case codes.ResourceExhausted: // gRPC's limit on the size of a message
		return wrap(store.ErrTooLarge, err)
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return wrap(store.ErrUnavailable, err)
	}
	return err
}

func wrap(contract, err error) error {
	if strings.Contains(err.Error(), contract.Error()) {
		return contract
	}
	return fmt.Errorf("%w: %w", contract, err)
}
