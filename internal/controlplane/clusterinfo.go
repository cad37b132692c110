package controlplane

import "github.com/knarr-project/knarr/internal/clusterinfo"

// clusterInfo is what joined nodes learn from this server.
func (s *Server) clusterInfo() clusterinfo.Info {
	return clusterinfo.Info{
		ServiceCIDR: s.cfg.ServiceCIDR, PodCIDR: s.cfg.PodCIDR, ClusterDomain: s.cfg.ClusterDomain, ClusterDNS: s.cfg.ServiceIP(10).String(),
	}
}
