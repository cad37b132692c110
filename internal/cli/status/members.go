package status

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/member"
)

// members names the servers that hold the store, if there are several. A server with an outside
// etcd has none.
func (r *Report) members(ctx context.Context, config *rest.Config) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		r.part("servers", Unknown, oneLine(err))
		return
	}
	defer c.CloseIdleConnections()
	var list member.List
	err = member.Ask(ctx, c, http.MethodGet, strings.TrimSuffix(config.Host, "/")+member.Path, nil, &list)
	switch status := member.StatusOf(err); {
	case status == http.StatusNotImplemented, status == http.StatusNotFound, err == nil && len(list.Members) < 2:
		return
	case err != nil:
		r.part("servers", Unknown, oneLine(err))
		return
	}
	r.Members = list.Members
	health, text := describeMembers(list.Members)
	r.part("servers", health, text)
}

// describeMembers is one line about all members.
func describeMembers(all []member.Member) (Health, string) {
	var names []string
	voters, answering := 0, 0
	health := Fine
	for _, m := range all {
		name := m.Name
		if name == "" {
			name = m.ID
		}
		if !m.Learner {
			voters++
		}
		switch {
		case m.Health != member.Healthy:
			health = Bad
			name += " (" + m.Health + ")"
		case m.Learner:
			name += " (learner)"
		case m.Leader:
			name += " (leader)"
		}
		if m.Health == member.Healthy && !m.Learner {
			answering++
		}
		names = append(names, name)
	}
	return health, fmt.Sprintf("%d of %d voters answer: %s", answering, voters, strings.Join(names, ", "))
}
