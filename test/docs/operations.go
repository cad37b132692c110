package docs

import "strings"

// Scenario is a set of machines and the pages of docs/operations whose commands run on them, in
// this order. Each page finds the cluster that the one before has left.
type Scenario struct {
	Name     string
	Machines []string // the first one is that of a prompt without a name
	Pages    []string // below docs/operations, without .md
	// Programs are in the path of all machines: their packages, as test/e2e names them. Knarr's own
	// is built as a newer release.
	Programs map[string]string
	// Replaces is true if commands replace the machines' knarr. Each machine then has a copy.
	Replaces bool
}

// Operations lists all pages of docs/operations that hold commands. test/e2e runs them.
var Operations = []Scenario{
	{
		Name:     "several servers",
		Machines: []string{"first", "second", "third", "fourth", "fifth", "sixth", "worker", "laptop"},
		Pages: []string{
			"add-a-server", "the-leader", "store-health", "certificates", "reach-several-servers",
			"remove-a-server", "replace-a-server", "lost-disk", "change-an-address", "move-a-cluster",
		},
	},
	{
		Name:     "growth",
		Machines: []string{"first", "second", "third"},
		Pages:    []string{"one-and-three-servers"},
	},
	{
		Name:     "authorities",
		Machines: []string{"first", "second"},
		Pages:    []string{"rotate-ca"},
	},
	{
		Name:     "disasters",
		Machines: []string{"first", "second", "third", "worker"},
		Pages:    []string{"restore", "lost-quorum", "lost-servers"},
		Programs: map[string]string{"age-keygen": "filippo.io/age/cmd/age-keygen"},
	},
	{
		Name:     "one server",
		Machines: []string{"first"},
		Pages:    []string{"snapshots"},
		Programs: map[string]string{"age-keygen": "filippo.io/age/cmd/age-keygen"},
	},
	{
		Name:     "outside etcd",
		Machines: []string{"first", "second", "etcd"},
		Pages:    []string{"outside-etcd"},
		Programs: map[string]string{"etcd": "./etcd"},
	},
	{
		Name:     "upgrade",
		Machines: []string{"first", "second", "third"},
		Pages:    []string{"upgrade"},
		Programs: map[string]string{"knarr-next": "../../cmd/knarr"},
		Replaces: true,
	},
}

// OtherTests names the tests that run the commands of whole pages of docs/operations instead.
var OtherTests = map[string]string{}

// RunBy returns the name of the test that runs the block's commands, for a block that no walk runs:
// `<!-- walk: by TestName -->`. Otherwise it returns "".
func (b *Block) RunBy() string {
	words := strings.Fields(b.Directive)
	for i, w := range words {
		if w == "by" && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}
