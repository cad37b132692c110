package run

import (
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/doctor"
)

// Doctor checks this machine for a server with a node. It changes nothing.
func Doctor(cfg *config.Config) []doctor.Finding {
	setNodePaths(cfg)
	return doctor.Examine(cfg, doctor.Server|doctor.Node|doctor.Runtime|doctor.Proxy|doctor.Speed)
}
