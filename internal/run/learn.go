package run

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/clusterinfo"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/durable"
)

// learnTimeout is how long a node that knows its cluster waits for the server at the start.
const learnTimeout = 5 * time.Second

// learn makes the cluster's ranges, domain and DNS address this node's own. The last answer is
// stored, so that a node can start without its server. A flag with another value is an error.
func (j *joined) learn(ctx context.Context, c client.Interface) error {
	stored, known := j.stored()
	limited := ctx
	if known {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, learnTimeout)
		defer cancel()
	}
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		info, err := clusterinfo.Read(limited, c)
		switch {
		case err == nil:
			if info != stored {
				if err := j.store(info); err != nil {
					return err
				}
			}
			return follow(j.cfg, info)
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			j.log.Warn("the server does not publish the cluster's ranges; the flags of this node decide", "service-cidr", j.cfg.ServiceCIDR, "pod-cidr", j.cfg.PodCIDR, "cluster-domain", j.cfg.ClusterDomain, "error", err)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case known && limited.Err() != nil:
			j.log.Warn("the server does not answer; using the ranges of the last start", "error", err)
			return follow(j.cfg, stored)
		}
		j.log.Info("waiting for the server to learn the cluster's ranges", "error", err)
		sleep(limited, wait)
	}
}

func (j *joined) path() string { return filepath.Join(j.dir, "cluster.json") }

// stored returns the last answer, if there is a usable one.
func (j *joined) stored() (info clusterinfo.Info, ok bool) {
	data, err := os.ReadFile(j.path())
	if err != nil || json.Unmarshal(data, &info) != nil || info.Validate() != nil {
		return clusterinfo.Info{}, false
	}
	return info, true
}

func (j *joined) store(info clusterinfo.Info) error {
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return durable.WriteFile(j.path(), data)
}

// follow sets the node's configuration to the cluster's.
func follow(cfg *config.Config, info clusterinfo.Info) error {
	for _, one := range []struct {
		flag  string
		ours  *string
		value string
	}{
		{"service-cidr", &cfg.ServiceCIDR, info.ServiceCIDR}, {"pod-cidr", &cfg.PodCIDR, info.PodCIDR}, {"cluster-domain", &cfg.ClusterDomain, info.ClusterDomain},
	} {
		if cfg.IsGiven(one.flag) && *one.ours != one.value {
			return fmt.Errorf("--%s: %q is not usable: the cluster has %q; leave the flag out", one.flag, *one.ours, one.value)
		}
		*one.ours = one.value
	}
	cfg.SetDNSAddress(info.ClusterDNS)
	return nil
}
