package rotation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/store"
)

// Prefixes of the keys in the store.
const (
	recordPrefix = "/knarr/authorities/"
	reportPrefix = "/knarr/certificates/"
)

// seenEvery is how often a server renews its Report without a change.
const seenEvery = 6 * time.Hour

// Manager applies the cluster's Records to one server. Safe for concurrent use.
type Manager struct {
	Store store.Store
	Keys  *pki.PKI
	// Dir is the folder of the keys, DIR/pki.
	Dir string
	// Server is the server's name in its Report.
	Server string
	// Inventory returns the server's certificates for its Report; may be nil.
	Inventory func() []pki.Entry
	// Loaded holds the hashes of the CAs that a part of the server has read at its start and does
	// not read again, by the authority's name.
	Loaded map[string][]string
	// Alone reports whether no other server uses the store; nil means that one may.
	Alone func() bool
	// Members returns the names of all servers. If it is nil, a server is a name with a Report.
	Members func(ctx context.Context) ([]string, error)
	// Encryption is this server's encryption of the store; nil means that it has none to rotate.
	Encryption EncryptionKeys
	// Applied is called after each change of the server's keys; may be nil. An error is reported
	// and tried again.
	Applied func(ctx context.Context) error
	Clock   clock.WithTicker
	Log     *slog.Logger

	mu      sync.Mutex // held by Apply and Advance
	applied map[string]*Record
	failed  string
}

// Report is what one server has applied.
type Report struct {
	Server string    `json:"server"`
	Seen   time.Time `json:"seen"`
	// Generations are those of the applied Records, by name.
	Generations map[string]int64 `json:"generations,omitempty"`
	// Loaded is as in Manager.
	Loaded map[string][]string `json:"loaded,omitempty"`
	// Encryption is the hash of the server's encryption configuration. Unmanaged is the reason why
	// knarr cannot change it.
	Encryption string `json:"encryption,omitempty"`
	Unmanaged  string `json:"unmanaged,omitempty"`
	// Error is why a Record could not be applied.
	Error        string      `json:"error,omitempty"`
	Certificates []pki.Entry `json:"certificates,omitempty"`
}

// appliedFile holds the applied Records, so that a store restored from an older snapshot does not
// take the server's keys back.
func (m *Manager) appliedFile() string { return filepath.Join(m.Dir, "rotation.json") }

func (m *Manager) loadApplied() error {
	if m.applied != nil {
		return nil
	}
	data, err := os.ReadFile(m.appliedFile())
	if errors.Is(err, fs.ErrNotExist) {
		m.applied = map[string]*Record{}
		return nil
	}
	if err != nil {
		return err
	}
	applied := map[string]*Record{}
	if err := json.Unmarshal(data, &applied); err != nil {
		return fmt.Errorf("%s: %w", m.appliedFile(), err)
	}
	m.applied = applied
	return nil
}

// Apply makes the server's keys what the store's Records say. A server that was down applies all
// that it missed.
func (m *Manager) Apply(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.apply(ctx)
	m.failed = ""
	if err != nil {
		m.failed = err.Error()
	}
	return err
}

func (m *Manager) apply(ctx context.Context) error {
	if err := m.loadApplied(); err != nil {
		return err
	}
	found, err := m.Records(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for name, have := range m.applied {
		if now := found[name]; now == nil || now.Generation < have.Generation {
			if name == Encryption {
				have = have.reopened(m.Clock.Now()) // the older store has values of removed keys
			}
			if err := m.restore(ctx, name, have); err != nil {
				errs = append(errs, err)
			}
			found[name] = have
		}
	}
	for _, name := range sortedNames(found) {
		if gone, err := m.dropForeign(ctx, found[name]); err != nil {
			errs = append(errs, err)
			continue
		} else if gone {
			continue
		}
		if err := m.take(ctx, found[name]); err != nil {
			errs = append(errs, fmt.Errorf("rotation of %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// dropForeign removes a Record with a lost key: the store was restored without its keys, and
// this server, the only one, has made new keys.
func (m *Manager) dropForeign(ctx context.Context, r *Record) (bool, error) {
	if r.Seal == m.Keys.Seal.ID() || m.applied[r.Name] != nil || m.Alone == nil || !m.Alone() {
		return false, nil
	}
	m.Log.Warn("the store has the record of a rotation of other keys; removing it", "authority", r.Name, "generation", r.Generation)
	_, err := m.Store.Commit(ctx, nil, store.Op{Key: recordPrefix + r.Name, Delete: true})
	return true, err
}

// take applies one Record. It is repeated at each start, because a crash may have come between.
func (m *Manager) take(ctx context.Context, r *Record) error {
	have := m.applied[r.Name]
	same := have != nil && have.Generation == r.Generation
	if r.Name == Encryption {
		if same && r.Phase == Settled {
			return nil // an administrator may have changed the file since
		}
		if err := m.encryptAs(ctx, r); err != nil {
			return err
		}
	} else {
		if err := r.adopt(m.Keys); err != nil {
			return err
		}
		if err := m.Keys.Renew(); err != nil {
			return err
		}
	}
	if same {
		return nil
	}
	m.applied[r.Name] = r
	data, err := json.Marshal(m.applied)
	if err != nil {
		return err
	}
	m.Log.Info("applied a step of a rotation", "authority", r.Name, "generation", r.Generation, "phase", string(r.Phase))
	return durable.WriteFile(m.appliedFile(), data)
}

// restore writes a Record that the store has lost.
func (m *Manager) restore(ctx context.Context, name string, have *Record) error {
	m.Log.Warn("the store is older than this server's keys; writing their record again", "authority", name, "generation", have.Generation)
	kv, _, err := m.Store.Get(ctx, recordPrefix+name, 0)
	if err != nil {
		return err
	}
	return m.write(ctx, have, kv)
}

func (m *Manager) write(ctx context.Context, r *Record, before *store.KeyValue) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	key := recordPrefix + r.Name
	condition := store.Condition{Key: key}
	if before != nil {
		condition.ModRevision = before.ModRevision
	}
	result, err := m.Store.Commit(ctx, []store.Condition{condition}, store.Op{Key: key, Value: data})
	if err == nil && !result.Succeeded {
		err = fmt.Errorf("%s: another server took a step at the same moment; look at --status and try again", r.Name)
	}
	return err
}

// Records returns the cluster's Records by name.
func (m *Manager) Records(ctx context.Context) (map[string]*Record, error) {
	found, err := m.Store.Range(ctx, recordPrefix, store.RangeOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]*Record{}
	for _, kv := range found.KVs {
		r := &Record{}
		if err := json.Unmarshal(kv.Value, r); err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
		out[strings.TrimPrefix(kv.Key, recordPrefix)] = r
	}
	return out, nil
}

// Advance takes a step and applies it to this server. Other servers follow by themselves. The
// caller has checked that no party lags. A caller that saw another phase gets an error.
func (m *Manager) Advance(ctx context.Context, name string, step Step) (*Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.apply(ctx); err != nil {
		return nil, err
	}
	kv, _, err := m.Store.Get(ctx, recordPrefix+name, 0)
	if err != nil {
		return nil, err
	}
	var before *Record
	if kv != nil {
		before = &Record{}
		if err := json.Unmarshal(kv.Value, before); err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
	}
	var next *Record
	switch {
	case step == Start && before != nil && before.Phase != Settled:
		err = fmt.Errorf("%s: a rotation is under way in phase %q; finish it first", name, before.Phase)
	case step == Start && name == Encryption:
		next, err = m.beginEncryption(ctx, before)
	case step == Start:
		next, err = begin(name, before, m.Keys, m.Clock.Now())
	case before == nil:
		err = fmt.Errorf("%s: no rotation is under way", name)
	default:
		next, err = advance(before, step, m.Clock.Now())
	}
	if err != nil {
		return nil, err
	}
	if err := m.write(ctx, next, kv); err != nil {
		return nil, err
	}
	written()
	return next, m.take(ctx, next)
}

// written is called between the write of a step and its application. Tests replace it to stop
// there.
var written = func() {}

// Removed reports whether a rotation has ended the trust in a key, by its hash.
func (m *Manager) Removed(hash string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.applied {
		if slices.Contains(r.Removed, hash) {
			return true
		}
	}
	return false
}

// Generation returns the generation of a Record that this server has applied, or 0.
func (m *Manager) Generation(name string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.applied[name]; r != nil {
		return r.Generation
	}
	return 0
}

// Run applies changed Records until ctx ends, and keeps the server's Report.
func (m *Manager) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := m.follow(ctx); err != nil && ctx.Err() == nil {
			m.Log.Warn("cannot follow the rotation of keys; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-m.Clock.After(5 * time.Second):
		}
	}
}

// follow watches the Records until the watch fails.
func (m *Manager) follow(ctx context.Context) error {
	stream, err := m.Store.Watch(ctx, recordPrefix, 0)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		err := m.Apply(ctx)
		if m.Applied != nil {
			err = errors.Join(err, m.Applied(ctx))
		}
		if err := errors.Join(err, m.report(ctx)); err != nil {
			return err
		}
		if err := m.await(ctx, stream); err != nil {
			return err
		}
	}
}

// await returns at the next change of a Record, or when the Report is due.
func (m *Manager) await(ctx context.Context, stream store.Stream) error {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := m.Clock.NewTimer(seenEvery)
	defer timer.Stop()
	renewed := m.Keys.Renewed()
	go func() {
		select {
		case <-limited.Done():
		case <-timer.C():
		case <-renewed:
		}
		cancel()
	}()
	for {
		batch, err := stream.Next(limited)
		if ctx.Err() == nil && limited.Err() != nil {
			return nil
		}
		if err != nil || len(batch.Events) > 0 {
			return err
		}
	}
}

// report writes the server's Report.
func (m *Manager) report(ctx context.Context) error {
	m.mu.Lock()
	r := Report{Server: m.Server, Seen: m.Clock.Now().UTC(), Generations: map[string]int64{}, Error: m.failed, Loaded: m.Loaded}
	for name, record := range m.applied {
		r.Generations[name] = record.Generation
	}
	m.mu.Unlock()
	if m.Inventory != nil {
		r.Certificates = m.Inventory()
	}
	r.Encryption, r.Unmanaged = m.encryptionState()
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = m.Store.Commit(ctx, nil, store.Op{Key: reportPrefix + m.Server, Value: data})
	return err
}

// Reports returns the Reports of all servers.
func (m *Manager) Reports(ctx context.Context) ([]Report, error) {
	found, err := m.Store.Range(ctx, reportPrefix, store.RangeOptions{})
	if err != nil {
		return nil, err
	}
	var out []Report
	for _, kv := range found.KVs {
		var r Report
		if err := json.Unmarshal(kv.Value, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
		out = append(out, r)
	}
	if m.Members == nil {
		return out, nil
	}
	names, err := m.Members(ctx)
	if err != nil {
		return nil, err
	}
	out = slices.DeleteFunc(out, func(r Report) bool { return !slices.Contains(names, r.Server) })
	for _, name := range names {
		if !slices.ContainsFunc(out, func(r Report) bool { return r.Server == name }) {
			out = append(out, Report{Server: name, Error: "it has not told its state yet"})
		}
	}
	return out, nil
}

// Forget removes the Report of a server that is gone for good.
func (m *Manager) Forget(ctx context.Context, server string) error {
	_, err := m.Store.Commit(ctx, nil, store.Op{Key: reportPrefix + server, Delete: true})
	return err
}

func sortedNames(records map[string]*Record) []string {
	var names []string
	for name := range records {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
