package run

import (
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/doctor"
)

// Doctor looks at what a server with a node needs of this machine. It changes nothing.
func Doctor(cfg *config.Config) []doctor.Finding {
	placeNode(cfg)
	return doctor.Examine(cfg, doctor.Server|doctor.Node|doctor.Runtime|doctor.Proxy)
}
