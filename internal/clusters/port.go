package clusters

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// PortTaken explains why a listener could not be opened. If a cluster of this machine has the port,
// the error names it.
func (g Registry) PortTaken(err error, address, flag string) error {
	r, known := g.Listening(address)
	switch {
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: ports below 1024 need root; choose another address with --%s", err, flag)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%w: this machine has no such address; choose another one with --%s", err, flag)
	case !errors.Is(err, unix.EADDRINUSE):
		return err
	case known:
		return fmt.Errorf("%w: the cluster %s has it; `knarr stop %s` stops that one, --%s chooses another address", err, r, r.Name, flag)
	}
	return fmt.Errorf("%w: another program has it; --%s chooses another address", err, flag)
}
