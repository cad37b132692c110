package measure

import (
	"github.com/knarr-project/knarr/internal/client"
	counted "github.com/knarr-project/knarr/internal/client/measured"
)

// Client measures the requests of the node agent to the API server, also to one in the same
// process. host names that server.
func (m *Metrics) Client(c client.Interface, host string) client.Interface {
	calls := counted.New()
	m.main.MustRegister(calls.Collectors()...)
	return calls.Client(c, host)
}
