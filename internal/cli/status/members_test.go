package status

import (
	"testing"

	"github.com/knarr-project/knarr/internal/member"
)

func TestTheServersAreNamed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		all    []member.Member
		health Health
		text   string
	}{
		{"all answer", []member.Member{{Name: "a", Leader: true, Health: member.Healthy}, {Name: "b", Health: member.Healthy}}, Fine, "2 of 2 voters answer: a (leader), b"},
		{"one is gone", []member.Member{{Name: "a", Leader: true, Health: member.Healthy}, {Name: "b", Health: "no route"}}, Bad, "1 of 2 voters answer: a (leader), b (no route)"},
		{"one joins", []member.Member{{Name: "a", Leader: true, Health: member.Healthy}, {ID: "ff", Learner: true, Health: member.Healthy}}, Fine, "1 of 1 voters answer: a (leader), ff (learner)"},
	} {
		if health, text := describeMembers(tt.all); health != tt.health || text != tt.text {
			t.Errorf("%s: %s, %q", tt.name, health, text)
		}
	}
}
