package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/upgrade"
)

// Keys of upgrades, below those of the cluster.
const (
	orderKey      = upgrade.OrderKey
	machinePrefix = "/knarr/upgrade/machines/"
)

// maxDownloads limits the programs that are served at the same time.
const maxDownloads = 8

// openUpgrades makes the agent that replaces this server's program.
func (s *Server) openUpgrades(o Options) {
	s.downloads, s.orders = make(chan struct{}, maxDownloads), newOrders()
	s.upgrades = &upgrade.Agent{
		Kind: upgrade.Server, Name: o.Config.NodeName, Node: o.NodeHere, DataDir: o.Config.DataDir, Program: o.Program, Restart: o.Restart,
		Fetch: s.fetchProgram, Tell: s.tellUpgrade, Log: o.Log.With("component", "upgrade"),
	}
}

func (s *Server) upgradePaths(paths map[string]http.Handler) {
	status := answer(http.MethodGet, func(r *http.Request, _ *struct{}) (any, error) { return s.upgradeStatus(r.Context()) })
	order := answer(http.MethodPost, func(r *http.Request, in *upgrade.Order) (any, error) { return s.orderUpgrade(r.Context(), in) })
	paths[upgrade.Path] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			order.ServeHTTP(w, r)
			return
		}
		status.ServeHTTP(w, r)
	})
	paths[upgrade.NodePath] = http.HandlerFunc(s.serveNodeReport)
	paths[upgrade.WatchPath] = http.HandlerFunc(s.serveNodeWatch)
	paths[upgrade.ProgramPath] = http.HandlerFunc(s.serveProgram)
}

// readOrder returns the present Order with its generation, or nil.
func (s *Server) readOrder(ctx context.Context) (*upgrade.Order, error) {
	kv, _, err := s.ownStore().Get(ctx, orderKey, 0)
	if err != nil || kv == nil {
		return nil, err
	}
	o := &upgrade.Order{}
	if err := json.Unmarshal(kv.Value, o); err != nil {
		return nil, fmt.Errorf("the order of an upgrade in the store (%s): %w", orderKey, err)
	}
	o.Generation = kv.ModRevision
	return o, nil
}

// orderUpgrade stores an Order, or removes it if it is finished.
func (s *Server) orderUpgrade(ctx context.Context, o *upgrade.Order) (*upgrade.Order, error) {
	if s.members == nil {
		return nil, refused{errors.New("this cluster's store is an outside etcd, so its servers do not know each other: upgrade each one with `knarr upgrade --here`")}
	}
	if err := o.Validate(); err != nil {
		return nil, refused{err}
	}
	next, condition := *o, store.Condition{Key: orderKey, ModRevision: o.Generation}
	next.Generation = 0
	op := store.Op{Key: orderKey, Delete: true}
	if !o.Finished {
		value, err := json.Marshal(next)
		if err != nil {
			return nil, err
		}
		op = store.Op{Key: orderKey, Value: value}
	}
	result, err := s.ownStore().Commit(ctx, []store.Condition{condition}, op)
	if err != nil {
		return nil, err
	}
	if !result.Succeeded {
		return nil, refused{errors.New("another `knarr upgrade` has changed the order at the same moment: one at a time")}
	}
	next.Generation = result.Revision
	return &next, nil
}

// reports returns the Reports of all machines.
func (s *Server) upgradeReports(ctx context.Context) ([]upgrade.Report, error) {
	found, err := s.ownStore().Range(ctx, machinePrefix, store.RangeOptions{Limit: 10000})
	if err != nil {
		return nil, err
	}
	out := []upgrade.Report{}
	for _, kv := range found.KVs {
		r, err := upgrade.ParseReport(kv.Value)
		kind, name, _ := strings.Cut(strings.TrimPrefix(kv.Key, machinePrefix), "/")
		if err == nil && r.Kind == kind && r.Name == name {
			out = append(out, r)
		}
	}
	return out, nil
}

// storeReport writes a machine's Report unless it is there already.
func (s *Server) storeReport(ctx context.Context, r upgrade.Report) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	key := machinePrefix + r.Kind + "/" + r.Name
	if kv, _, err := s.ownStore().Get(ctx, key, 0); err != nil || kv != nil && string(kv.Value) == string(value) {
		return err
	}
	_, err = s.ownStore().Commit(ctx, nil, store.Op{Key: key, Value: value})
	return err
}

// tellUpgrade writes this server's Report.
func (s *Server) tellUpgrade(ctx context.Context, r upgrade.Report) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := s.storeReport(ctx, r); err != nil && ctx.Err() == nil {
		s.log.Warn("cannot tell how far the upgrade of this server is", "component", "upgrade", "error", err)
	}
}

// serveProgram serves the program of the present Order, in parts.
func (s *Server) serveProgram(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "method not allowed: GET", http.StatusMethodNotAllowed)
		return
	}
	select {
	case s.downloads <- struct{}{}:
		defer func() { <-s.downloads }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "this server serves the program to others", http.StatusTooManyRequests)
		return
	}
	o, err := s.readOrder(r.Context())
	if err != nil {
		answerError(w, err)
		return
	}
	if o == nil || r.URL.Query().Get("sha256") != o.Program.SHA256 {
		http.Error(w, "no upgrade to a program of this sha256 is under way", http.StatusNotFound)
		return
	}
	f, err := os.Open(upgrade.Staged(s.cfg.DataDir, o.Program))
	if err != nil {
		http.Error(w, "this server does not have the program yet", http.StatusServiceUnavailable)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, f)
}

// fetchProgram fetches bytes of the Order's program from another server.
func (s *Server) fetchProgram(ctx context.Context, p upgrade.Program, offset int64) ([]byte, error) {
	all, err := s.describedServers(ctx)
	if err != nil {
		return nil, err
	}
	c := s.serverClient()
	defer c.CloseIdleConnections()
	var failed []error
	for _, info := range all {
		if info.Name == s.cfg.NodeName {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		data, err := upgrade.FetchFrom(limited, c, info.URL, p, offset)
		cancel()
		if err == nil {
			return data, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", info.Name, err))
	}
	if len(failed) == 0 {
		return nil, errors.New("no other server has it")
	}
	return nil, errors.Join(failed...)
}

// followUpgrades watches the cluster's Order and does what it says until ctx ends.
func (s *Server) followUpgrades(ctx context.Context) {
	if err := s.api.Started(ctx); err != nil {
		return
	}
	_ = process.Alongside(ctx, process.Part(s.watchOrders), process.Part(s.obeyOrders))
}

// obeyOrders has the agent follow the latest Order. A turn takes minutes, and the watch goes on
// meanwhile.
func (s *Server) obeyOrders(ctx context.Context) {
	for seen := 0; ; {
		o, n, err := s.orders.next(ctx, seen)
		if err != nil {
			return
		}
		seen = n
		s.upgrades.Follow(ctx, o)
	}
}

// watchOrders publishes the Order and its changes until ctx ends.
func (s *Server) watchOrders(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.watchOrder(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot follow upgrades; trying again", "component", "upgrade", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
}

// watchOrder publishes the Order and its changes until the watch fails.
func (s *Server) watchOrder(ctx context.Context) error {
	stream, err := s.ownStore().Watch(ctx, orderKey, 0)
	if err != nil {
		return err
	}
	defer stream.Close()
	s.tellUpgrade(ctx, s.upgrades.Report())
	for {
		o, err := s.readOrder(ctx)
		if err != nil {
			return err
		}
		s.orders.publish(o)
		for {
			batch, err := stream.Next(ctx)
			if err != nil {
				return err
			}
			if len(batch.Events) > 0 {
				break
			}
		}
	}
}

// upgradeStatus collects what an administrator needs to know before and during an upgrade.
func (s *Server) upgradeStatus(ctx context.Context) (*upgrade.Status, error) {
	if s.members == nil {
		return nil, refused{errors.New("this cluster's store is an outside etcd, so its servers do not know each other: upgrade each one with `knarr upgrade --here`")}
	}
	out := &upgrade.Status{}
	var err error
	if out.Order, err = s.readOrder(ctx); err != nil {
		return nil, err
	}
	if out.Reports, err = s.upgradeReports(ctx); err != nil {
		return nil, err
	}
	list, err := s.listMembers(ctx)
	if err != nil {
		return nil, err
	}
	c := s.serverClient()
	defer c.CloseIdleConnections()
	out.Servers = make([]upgrade.ServerState, len(list.Members))
	deprecated := make([][]upgrade.DeprecatedAPI, len(list.Members))
	var asked sync.WaitGroup
	for i, m := range list.Members {
		out.Servers[i] = upgrade.ServerState{Member: m, Ready: m.Health}
		if m.Health == member.Healthy {
			asked.Go(func() { deprecated[i] = s.examineServer(ctx, c, &out.Servers[i]) })
		}
	}
	asked.Wait()
	out.Deprecated = slices.Concat(deprecated...)
	return out, nil
}

// examineServer asks a server whether it is ready, and which deprecated APIs clients use there.
func (s *Server) examineServer(ctx context.Context, c *http.Client, state *upgrade.ServerState) []upgrade.DeprecatedAPI {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	url := state.Server
	if state.Self {
		url = s.url
	}
	if _, err := getText(ctx, c, url+"/readyz"); err != nil {
		state.Ready = reason(err)
		return nil
	}
	state.Ready = member.Healthy
	text, err := getText(ctx, c, url+"/metrics")
	if err != nil {
		return nil // the metrics may be switched off
	}
	return deprecatedAPIs(state.Name, text)
}

// maxAnswerText limits the answer of another server in bytes.
const maxAnswerText = 64 << 20

func getText(ctx context.Context, c *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerText))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: it answers %s", url, response.Status)
	}
	return string(text), err
}

// deprecatedAPIs reads the metric of requested deprecated APIs.
func deprecatedAPIs(server, metrics string) []upgrade.DeprecatedAPI {
	const name = "apiserver_requested_deprecated_apis"
	var lines strings.Builder
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, name+"{") {
			lines.WriteString(line)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(lines.String()))
	if err != nil || families[name] == nil {
		return nil
	}
	var out []upgrade.DeprecatedAPI
	for _, m := range families[name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		resource := strings.TrimSuffix(labels["resource"]+"."+labels["version"]+"."+labels["group"], ".")
		out = append(out, upgrade.DeprecatedAPI{Server: server, Resource: resource, Removed: labels["removed_release"]})
	}
	return out
}
