package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// leaveTime limits the removal of a member before a purge.
const leaveTime = 20 * time.Second

// LeaveServers removes the server of a data folder from the members of its store before a purge. It
// returns the names of the members that are left; none if there were no others. The error says how
// the server is removed otherwise. A dead member counts for the majority that writes need.
func LeaveServers(ctx context.Context, cfg *config.Config) (left []string, err error) {
	if !etcd.HasOthers(cfg.Path("etcd")) {
		return nil, nil
	}
	r, err := clusters.Load(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if !r.Alive() {
		return nil, fmt.Errorf("server %s does not run: if other servers have it as a member, `knarr member rm %[1]s` there removes it", r.NodeName)
	}
	if left, err = leave(ctx, cfg.AdminKubeconfig()); err != nil {
		return nil, fmt.Errorf("server %s stays a member of the store: %w; `knarr member rm %[1]s` on another server removes it", r.NodeName, err)
	}
	return left, nil
}

// leave removes the server of a kubeconfig from the members.
func leave(ctx context.Context, kubeconfig string) (left []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := rest.HTTPClientFor(access)
	if err != nil {
		return nil, err
	}
	defer c.CloseIdleConnections()
	server := strings.TrimSuffix(access.Host, "/")
	var list member.List
	if err := member.Ask(ctx, c, http.MethodGet, server+member.Path, nil, &list); err != nil {
		return nil, err
	}
	if list.Outdated != "" {
		return nil, fmt.Errorf("a majority of the voters does not answer: %s", list.Outdated)
	}
	self := slices.IndexFunc(list.Members, func(m member.Member) bool { return m.Self })
	switch {
	case self < 0:
		return nil, errors.New("the server does not find itself among the members")
	case len(list.Members) == 1:
		return nil, nil
	}
	// The ID is that of this store; another machine may have the name by now.
	var after member.List
	if err := member.Ask(ctx, c, http.MethodPost, server+member.RemovePath, member.Request{Name: list.Members[self].ID}, &after); err != nil {
		return nil, err
	}
	for _, m := range after.Members {
		if !m.Self {
			left = append(left, m.Name)
		}
	}
	return left, nil
}
