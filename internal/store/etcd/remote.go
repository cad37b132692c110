package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/knarr-project/knarr/internal/store"
)

// RemoteOptions selects an outside etcd.
type RemoteOptions struct {
	Endpoints []string // such as https://10.0.0.1:2379
	// TLS is needed for https endpoints. etcd authenticates this client by its certificate.
	TLS *tls.Config
	// Log receives the client's warnings; nil is slog.Default().
	Log *slog.Logger
	// Dial holds further settings of the connections.
	Dial []grpc.DialOption
}

// Remote is a store in an outside etcd.
type Remote struct {
	client   *clientv3.Client
	revision shared
}

var _ store.Store = (*Remote)(nil)

// Connect opens the store in an outside etcd and returns when etcd has answered.
func Connect(ctx context.Context, opts RemoteOptions) (*Remote, error) {
	if len(opts.Endpoints) == 0 {
		return nil, errors.New("connect to etcd: no endpoint given")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            opts.Endpoints,
		TLS:                  opts.TLS,
		DialTimeout:          10 * time.Second,
		DialKeepAliveTime:    30 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		// Larger than the server's limit, so that the server reports it.
		MaxCallSendMsgSize: 16 << 20,
		Logger:             zapToSlog(opts.Log),
		DialOptions:        append([]grpc.DialOption{grpc.WithReadBufferSize(64 << 10)}, opts.Dial...),
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %v: %w", opts.Endpoints, err)
	}
	r := &Remote{client: client}
	r.revision.call = r.readRevision
	if _, err := r.Revision(ctx); err != nil {
		client.Close()
		return nil, fmt.Errorf("connect to etcd at %v: %w", opts.Endpoints, err)
	}
	return r, nil
}

// Revision asks etcd's read index for the newest committed revision. Concurrent callers share a
// request.
func (r *Remote) Revision(ctx context.Context) (int64, error) {
	rev, err := r.revision.get(ctx)
	if err != nil {
		return 0, fmt.Errorf("read revision: %w", translate(ctx, err))
	}
	return rev, nil
}

func (r *Remote) readRevision(ctx context.Context) (int64, error) {
	resp, err := r.client.Get(ctx, "\x00", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

// Get reads one key.
func (r *Remote) Get(ctx context.Context, key string, revision int64) (*store.KeyValue, int64, error) {
	resp, err := r.client.Get(ctx, key, clientv3.WithRev(revision))
	if err != nil {
		return nil, 0, fmt.Errorf("get %s at revision %d: %w", key, revision, translate(ctx, err))
	}
	at := readRevision(revision, resp.Header.Revision)
	if len(resp.Kvs) == 0 {
		return nil, at, nil
	}
	kv := keyValue(resp.Kvs[0])
	return &kv, at, nil
}

// Range reads the keys below a prefix.
func (r *Remote) Range(ctx context.Context, prefix string, opts store.RangeOptions) (store.RangeResult, error) {
	first, end := bounds(prefix, opts.From)
	empty := len(end) > 0 && string(first) >= string(end)
	if len(end) == 0 {
		end = []byte{0} // the end of all keys, in etcd's protocol
	}
	op := []clientv3.OpOption{clientv3.WithRange(string(end)), clientv3.WithRev(opts.Revision), clientv3.WithLimit(opts.Limit)}
	switch {
	case empty: // only the revision is needed
		op = []clientv3.OpOption{clientv3.WithRev(opts.Revision), clientv3.WithCountOnly()}
	case opts.CountOnly:
		op = append(op, clientv3.WithCountOnly())
	case opts.KeysOnly:
		op = append(op, clientv3.WithKeysOnly())
	}
	resp, err := r.client.Get(ctx, string(first), op...)
	if err != nil {
		return store.RangeResult{}, fmt.Errorf("range %s at revision %d: %w", prefix, opts.Revision, translate(ctx, err))
	}
	out := store.RangeResult{Revision: readRevision(opts.Revision, resp.Header.Revision)}
	if empty {
		return out, nil
	}
	out.Count = resp.Count
	if opts.CountOnly {
		return out, nil
	}
	out.More = resp.More
	out.KVs = make([]store.KeyValue, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		out.KVs[i] = keyValue(kv)
	}
	return out, nil
}

// Commit applies ops at one revision if all conditions hold.
func (r *Remote) Commit(ctx context.Context, conditions []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	txn := r.client.Txn(ctx)
	var when []clientv3.Cmp
	var then, otherwise []clientv3.Op
	for _, c := range conditions {
		when = append(when, clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.ModRevision))
		otherwise = append(otherwise, clientv3.OpGet(c.Key))
	}
	for _, op := range ops {
		if op.Delete {
			then = append(then, clientv3.OpDelete(op.Key))
		} else {
			then = append(then, clientv3.OpPut(op.Key, string(op.Value), clientv3.WithLease(clientv3.LeaseID(op.Lease))))
		}
	}
	resp, err := txn.If(when...).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		return store.TxnResult{}, fmt.Errorf("commit %s: %w", describe(conditions, ops), translate(ctx, err))
	}
	return remoteTxnResult(resp, conditions), nil
}

func remoteTxnResult(resp *clientv3.TxnResponse, conditions []store.Condition) store.TxnResult {
	out := store.TxnResult{Succeeded: resp.Succeeded, Revision: resp.Header.Revision}
	if resp.Succeeded {
		return out
	}
	out.Current = make([]*store.KeyValue, len(conditions))
	for i := range conditions {
		if g := resp.Responses[i].GetResponseRange(); g != nil && len(g.Kvs) > 0 {
			kv := keyValue(g.Kvs[0])
			out.Current[i] = &kv
		}
	}
	return out
}

// Compact drops all revisions older than revision.
func (r *Remote) Compact(ctx context.Context, revision int64) error {
	if _, err := r.client.Compact(ctx, revision); err != nil {
		return fmt.Errorf("compact to revision %d: %w", revision, translate(ctx, err))
	}
	return nil
}

// Grant creates a lease.
func (r *Remote) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	resp, err := r.client.Grant(ctx, wholeSeconds(ttl))
	if err != nil {
		return 0, fmt.Errorf("grant a lease of %s: %w", ttl, translate(ctx, err))
	}
	return store.LeaseID(resp.ID), nil
}

// KeepAlive restarts the lease's time.
func (r *Remote) KeepAlive(ctx context.Context, id store.LeaseID) error {
	if _, err := r.client.KeepAliveOnce(ctx, clientv3.LeaseID(id)); err != nil {
		return fmt.Errorf("keep lease %x alive: %w", int64(id), translate(ctx, err))
	}
	return nil
}

// Revoke ends the lease and deletes its keys.
func (r *Remote) Revoke(ctx context.Context, id store.LeaseID) error {
	if _, err := r.client.Revoke(ctx, clientv3.LeaseID(id)); err != nil {
		return fmt.Errorf("revoke lease %x: %w", int64(id), translate(ctx, err))
	}
	return nil
}

// Size returns the bytes in use on the first endpoint.
func (r *Remote) Size(ctx context.Context) (int64, error) {
	s, err := r.client.Status(ctx, r.client.Endpoints()[0])
	if err != nil {
		return 0, fmt.Errorf("read size: %w", translate(ctx, err))
	}
	return s.DbSizeInUse, nil
}

// Snapshot writes a copy of the database at one moment to w, as a snapshot file.
func (r *Remote) Snapshot(ctx context.Context, w io.Writer) error {
	rc, err := r.client.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", translate(ctx, err))
	}
	defer rc.Close()
	if _, err := io.Copy(w, rc); err != nil {
		return fmt.Errorf("take a snapshot: %w", translate(ctx, err))
	}
	return nil
}

// Close ends the connection and all streams.
func (r *Remote) Close() error { return r.client.Close() }

// Watch streams changes below prefix.
func (r *Remote) Watch(_ context.Context, prefix string, after int64) (store.Stream, error) {
	first, end := bounds(prefix, "")
	if len(end) == 0 {
		end = []byte{0}
	}
	op := []clientv3.OpOption{clientv3.WithRange(string(end)), clientv3.WithProgressNotify()}
	if after > 0 {
		op = append(op, clientv3.WithRev(after+1))
	}
	// Each stream has its own watcher, so that a progress request concerns this stream alone.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	w := clientv3.NewWatcher(r.client)
	s := &remoteStream{ctx: ctx, cancel: cancel, watcher: w, prefix: prefix, answers: w.Watch(ctx, string(first), op...)}
	s.last.Store(after)
	return s, nil
}

type remoteStream struct {
	ctx     context.Context // lives as long as the watch, longer than any call
	cancel  context.CancelFunc
	watcher clientv3.Watcher
	answers clientv3.WatchChan
	prefix  string
	last    atomic.Int64 // highest revision delivered
}

func (s *remoteStream) Next(ctx context.Context) (store.Batch, error) {
	for {
		select {
		case r, ok := <-s.answers:
			if !ok {
				return store.Batch{}, s.failed(store.ErrUnavailable)
			}
			if err := r.Err(); err != nil {
				return store.Batch{}, s.failed(translate(ctx, err))
			}
			if b, ok := s.batch(r); ok {
				return b, nil
			}
		case <-ctx.Done():
			return store.Batch{}, s.failed(ctx.Err())
		}
	}
}

func (s *remoteStream) batch(r clientv3.WatchResponse) (store.Batch, bool) {
	if len(r.Events) == 0 {
		if !r.IsProgressNotify() || r.Header.Revision < s.last.Load() {
			return store.Batch{}, false
		}
		s.last.Store(r.Header.Revision)
		return store.Batch{Revision: r.Header.Revision}, true
	}
	b := store.Batch{Events: make([]store.Event, len(r.Events))}
	for i, e := range r.Events {
		b.Events[i] = event(e.Type, e.Kv)
	}
	b.Revision = b.Events[len(b.Events)-1].KV.ModRevision
	s.last.Store(b.Revision)
	return b, true
}

func (s *remoteStream) failed(err error) error {
	return fmt.Errorf("watch %s after revision %d: %w", s.prefix, s.last.Load(), err)
}

func (s *remoteStream) Progress(context.Context) error {
	// Use the stream's own context, since the client finds the stream by it.
	if err := s.watcher.RequestProgress(s.ctx); err != nil {
		return s.failed(translate(s.ctx, err))
	}
	return nil
}

func (s *remoteStream) Close() {
	s.cancel()
	s.watcher.Close()
}

// shared lets concurrent callers share a call. No caller gets the result of a call that began
// before its request.
type shared struct {
	call func(context.Context) (int64, error)

	mu      sync.Mutex
	running bool
	waiting *sharedCall // the call after the running one
}

type sharedCall struct {
	done  chan struct{}
	value int64
	err   error
}

func (s *shared) get(ctx context.Context) (int64, error) {
	s.mu.Lock()
	if s.waiting == nil {
		s.waiting = &sharedCall{done: make(chan struct{})}
	}
	c := s.waiting
	if !s.running {
		s.running = true
		go s.run()
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *shared) run() {
	for {
		s.mu.Lock()
		c := s.waiting
		s.waiting = nil
		if c == nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		c.value, c.err = s.call(ctx)
		cancel()
		close(c.done)
	}
}
