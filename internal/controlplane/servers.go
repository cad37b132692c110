package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
	"github.com/knarr-project/knarr/internal/upgrade"
	"github.com/knarr-project/knarr/internal/version"
)

// serverInfo describes a server. The store has one for each server, below knarrKey("servers"), so
// that servers find each other, and so that no node gets a certificate for their names.
type serverInfo struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Version string `json:"version"`
	// Names are the DNS names and addresses of the server, from which its certificate has them.
	Names []string `json:"names,omitempty"`
	// Kubernetes is the version of the API. Servers of before v1.36.3+knarr1 do not tell it.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Size is only in answers of the server itself.
	Size int64 `json:"size,omitempty"`
}

// askTimeout is how long a server waits for another one's description.
const askTimeout = 3 * time.Second

func (s *Server) info() serverInfo {
	names := append([]string{s.cfg.NodeName, s.cfg.AdvertiseAddress}, s.cfg.TLSNames...)
	return serverInfo{Name: s.cfg.NodeName, URL: s.apiURL(), Version: version.Current().Knarr, Kubernetes: version.Kubernetes, Names: names}
}

// serverNames returns the names and addresses of this server and of the others.
func (s *Server) serverNames(ctx context.Context) ([]controller.Server, error) {
	all, err := s.describedServers(ctx)
	if err != nil {
		return nil, fmt.Errorf("names of the servers: %w", err)
	}
	all[s.cfg.NodeName] = s.info()
	var out []controller.Server
	for _, name := range slices.Sorted(maps.Keys(all)) {
		one := controller.Server{Name: name, Names: append([]string{name}, all[name].Names...)}
		// The description of an older server has no names.
		if u, err := url.Parse(all[name].URL); err == nil && len(all[name].Names) == 0 {
			one.Names = append(one.Names, u.Hostname())
		}
		out = append(out, one)
	}
	return out, nil
}

func (s *Server) serveServer(w http.ResponseWriter, r *http.Request) {
	info := s.info()
	var err error
	if info.Size, err = s.raw.Size(r.Context()); err != nil {
		answerError(w, err)
		return
	}
	answerJSON(w, info)
}

func (s *Server) serverKey(name string) string { return knarrKey(s.cfg, "servers/"+name) }

// publishServer writes the description of this server to the store, unless it is there.
func (s *Server) publishServer(ctx context.Context) error {
	value, err := json.Marshal(s.info())
	if err != nil {
		return err
	}
	key := s.serverKey(s.cfg.NodeName)
	if kv, _, err := s.raw.Get(ctx, key, 0); err != nil || kv != nil && string(kv.Value) == string(value) {
		return err
	}
	_, err = s.raw.Commit(ctx, nil, store.Op{Key: key, Value: value})
	return err
}

// forgetServer deletes the description of a removed server. Without it, a later server of that name
// replaces it.
func (s *Server) forgetServer(ctx context.Context, name string) {
	if name == "" {
		return
	}
	if _, err := s.raw.Commit(ctx, nil, store.Op{Key: s.serverKey(name), Delete: true}); err != nil {
		s.log.Warn("the description of a removed server stays in the store", "component", "apiserver", "server", name, "err", err)
	}
}

// describedServers returns the descriptions in the store by name.
func (s *Server) describedServers(ctx context.Context) (map[string]serverInfo, error) {
	return s.describedAt(ctx, 0)
}

// describedAt is describedServers at a revision; 0 is the newest one.
func (s *Server) describedAt(ctx context.Context, revision int64) (map[string]serverInfo, error) {
	result, err := s.raw.Range(ctx, s.serverKey(""), store.RangeOptions{Limit: 100, Revision: revision})
	if err != nil {
		return nil, err
	}
	all := map[string]serverInfo{}
	for _, kv := range result.KVs {
		var info serverInfo
		if json.Unmarshal(kv.Value, &info) == nil {
			all[info.Name] = info
		}
	}
	return all, nil
}

// checkSkew refuses to start beside servers that are more than one minor version apart.
func (s *Server) checkSkew(ctx context.Context, own string) error {
	if s.members == nil || s.members.Alone() {
		return nil
	}
	members, err := s.members.Members(ctx)
	if err != nil {
		return err
	}
	described, err := s.describedServers(ctx)
	if err != nil {
		return err
	}
	for _, m := range members {
		info := described[m.Name]
		if m.Self || info.Kubernetes == "" {
			continue
		}
		if err := upgrade.CheckServers(own, info.Kubernetes); err != nil {
			return fmt.Errorf("this server cannot start beside server %s: %w; upgrade that one in steps, or remove it with `knarr member rm %s`", info.Name, err, info.Name)
		}
	}
	return nil
}

// serverURLs returns the URLs of this server and of the others.
func (s *Server) serverURLs(ctx context.Context) ([]string, error) {
	all, err := s.describedServers(ctx)
	if err != nil {
		return nil, err
	}
	urls := []string{s.apiURL()}
	for _, info := range all {
		if info.Name != s.cfg.NodeName {
			urls = append(urls, info.URL)
		}
	}
	return urls, nil
}

// listMembers returns the members, each as its own server describes it.
func (s *Server) listMembers(ctx context.Context) (member.List, error) {
	members, err := s.members.Members(ctx)
	if err != nil {
		return member.List{}, err
	}
	described, err := s.describedServers(ctx)
	if err != nil {
		return member.List{}, err
	}
	return s.askMembers(ctx, members, described), nil
}

// listKnownMembers returns the members as this server knows them, and which of them answer, while a
// majority does not. cause is why the present ones cannot be listed.
func (s *Server) listKnownMembers(ctx context.Context, cause error) (member.List, error) {
	members, revision, err := s.members.KnownMembers()
	if err != nil {
		return member.List{}, err
	}
	described, err := s.describedAt(ctx, revision)
	if err != nil {
		return member.List{}, err
	}
	list := s.askMembers(ctx, members, described)
	list.Outdated = reason(cause)
	return list, nil
}

// askMembers completes members by asking their servers.
func (s *Server) askMembers(ctx context.Context, members []etcd.Member, described map[string]serverInfo) member.List {
	list := shownAll(members)
	c := s.serverClient()
	defer c.CloseIdleConnections()
	var asked sync.WaitGroup
	for i := range list.Members {
		asked.Go(func() { s.describe(ctx, c, &list.Members[i], members[i], described[members[i].Name]) })
	}
	asked.Wait()
	return list
}

// describe completes a member by asking its server.
func (s *Server) describe(ctx context.Context, c *http.Client, m *member.Member, raw etcd.Member, known serverInfo) {
	m.Server, m.Version = known.URL, known.Version
	if m.Self {
		own := s.info()
		m.Name, m.Server, m.Version, m.Health = own.Name, own.URL, own.Version, member.Healthy
		m.Size, _ = s.raw.Size(ctx)
		return
	}
	if err := s.members.Reachable(ctx, raw); err != nil {
		m.Health = "the store does not answer: " + reason(err)
		return
	}
	if m.Server == "" {
		m.Health = "the API server has not started yet"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var info serverInfo
	if err := member.Ask(ctx, c, http.MethodGet, m.Server+member.ServerPath, nil, &info); err != nil {
		m.Health = "the API server does not answer: " + reason(err)
		return
	}
	m.Version, m.Size, m.Health = info.Version, info.Size, member.Healthy
}

// reason is the last part of an error, without the request that it belongs to.
func reason(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 && i+2 < len(text) {
		text = text[i+2:]
	}
	return text
}

// serverClient reaches other API servers as the administrator, with the CA of this cluster.
func (s *Server) serverClient() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: s.keys.ClientTLS(s.keys.Admin), ForceAttemptHTTP2: true}}
}
