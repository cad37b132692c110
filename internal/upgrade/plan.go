package upgrade

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/version"
)

// CordonedAnnotation marks a node that an upgrade has cordoned, so that it alone uncordons it.
const CordonedAnnotation = "knarr-project.github.io/upgrade-cordoned"

// Machine is one machine in a Plan.
type Machine struct {
	Kind, Name string
	// Version is the release that it runs, or its Kubernetes version if it tells no more.
	Version string
	// Node is the name of the node on this machine, or "".
	Node string
	// Done means that it runs the program already.
	Done bool
	// Cordoned means that an interrupted upgrade has left the machine's node cordoned.
	Cordoned bool
	// Leader is the server that leads the store.
	Leader bool
	// Why is why the machine is upgraded by hand, or left out.
	Why string
	// Report is what it told last; nil if it told nothing.
	Report *Report
}

func (m Machine) String() string { return m.Kind + " " + m.Name }

// Plan is the order of an upgrade: servers one by one, the leader last, then nodes.
type Plan struct {
	Servers, Nodes []Machine
	// ByHand are machines that cannot be told to replace their program. LeftOut are nodes that do
	// not work now.
	ByHand, LeftOut []Machine
	// Problems prevent the upgrade. Remarks do not.
	Problems, Remarks []string
	// Drainable means that a drained node's pods have another node to go to.
	Drainable bool
}

// Draw plans an upgrade to a program. It is pure.
func Draw(s *Status, nodes []corev1.Node, p Program) *Plan {
	plan := &Plan{}
	reports := map[string]*Report{}
	for i := range s.Reports {
		reports[s.Reports[i].Kind+" "+s.Reports[i].Name] = &s.Reports[i]
	}
	here := map[string]bool{} // nodes in servers' processes
	plan.drawServers(s, reports, p, here)
	schedulable := 0
	for i := range nodes {
		if at := slices.IndexFunc(plan.Servers, func(m Machine) bool { return m.Node == nodes[i].Name }); at >= 0 {
			plan.Servers[at].Cordoned = cordoned(&nodes[i])
		}
		if ready(&nodes[i]) && (!nodes[i].Spec.Unschedulable || cordoned(&nodes[i])) {
			schedulable++
		}
		if !here[nodes[i].Name] {
			plan.drawNode(&nodes[i], reports[Node+" "+nodes[i].Name], p)
		}
	}
	plan.Drainable = schedulable > 1
	byName := func(a, b Machine) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(plan.Nodes, byName)
	slices.SortFunc(plan.LeftOut, byName)
	for _, d := range s.Deprecated {
		if d.Gone(p.Build.Kubernetes) {
			plan.Problems = append(plan.Problems, fmt.Sprintf("clients of server %s use %s, which %s does not have any more (removed in %s): change them first", d.Server, d.Resource, p.Build.Kubernetes, d.Removed))
		}
	}
	slices.Sort(plan.Problems)
	plan.Problems = slices.Compact(plan.Problems)
	return plan
}

func (plan *Plan) drawServers(s *Status, reports map[string]*Report, p Program, here map[string]bool) {
	voters := 0
	for _, state := range s.Servers {
		r := reports[Server+" "+state.Name]
		m := Machine{Kind: Server, Name: state.Name, Version: state.Version, Leader: state.Leader, Report: r}
		if r != nil && r.Build.Knarr == state.Version { // else it is outdated
			m.Done = r.Build == p.Build
			if r.Node {
				m.Node, here[state.Name] = state.Name, true
			}
			if err := CheckServer(r.Build, p.Build); err != nil {
				plan.Problems = append(plan.Problems, err.Error())
			}
			m.Why = cannot(r, p)
		} else {
			m.Why = "its knarr cannot be told to"
		}
		switch {
		case state.Learner:
			plan.Problems = append(plan.Problems, fmt.Sprintf("server %s is still joining", state.Name))
		case state.Ready != member.Healthy:
			plan.Problems = append(plan.Problems, fmt.Sprintf("server %s is not ready: %s", state.Name, state.Ready))
		}
		voters++
		if m.Why != "" && !m.Done {
			plan.ByHand = append(plan.ByHand, m)
			continue
		}
		plan.addSpace(m, p)
		plan.Servers = append(plan.Servers, m)
	}
	slices.SortFunc(plan.Servers, func(a, b Machine) int {
		if a.Leader != b.Leader {
			if a.Leader {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	switch voters {
	case 1:
		plan.Remarks = append(plan.Remarks, "the API does not answer while the only server restarts; pods and Services go on")
	case 2:
		plan.Remarks = append(plan.Remarks, "two servers accept no writes while one of them restarts; pods and Services go on")
	}
}

// cannot returns why a machine cannot replace its program by this one.
func cannot(r *Report, p Program) string {
	switch {
	case r.Problem != "":
		return r.Problem
	case r.Build.Platform != p.Build.Platform:
		return fmt.Sprintf("it needs a program for %s", r.Build.Platform)
	}
	return ""
}

func (plan *Plan) addSpace(m Machine, p Program) {
	if !m.Done && m.Report != nil && m.Report.Free < p.Needed() {
		plan.Problems = append(plan.Problems, fmt.Sprintf("%s has %d MB free, and %d MB are needed", m, m.Report.Free>>20, p.Needed()>>20))
	}
}

func (plan *Plan) drawNode(n *corev1.Node, r *Report, p Program) {
	m := Machine{Kind: Node, Name: n.Name, Node: n.Name, Version: n.Status.NodeInfo.KubeletVersion, Report: r, Cordoned: cordoned(n)}
	if r != nil {
		m.Version, m.Done, m.Why = r.Build.Knarr, r.Build == p.Build, cannot(r, p)
	} else {
		m.Why = "its knarr cannot be told to"
	}
	if err := CheckKubelet(n.Status.NodeInfo.KubeletVersion, p.Build.Kubernetes); err != nil && !m.Done {
		plan.Problems = append(plan.Problems, fmt.Sprintf("node %s: %v", n.Name, err))
	}
	switch {
	case m.Done:
		plan.Nodes = append(plan.Nodes, m)
	case !ready(n):
		m.Why = "it is not Ready"
		plan.LeftOut = append(plan.LeftOut, m)
	case m.Why != "":
		plan.ByHand = append(plan.ByHand, m)
	default:
		plan.addSpace(m, p)
		plan.Nodes = append(plan.Nodes, m)
	}
}

func cordoned(n *corev1.Node) bool {
	_, marked := n.Annotations[CordonedAnnotation]
	return marked && n.Spec.Unschedulable
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Left returns the machines that do not run the program yet.
func Left(all []Machine) []Machine {
	return slices.DeleteFunc(slices.Clone(all), func(m Machine) bool { return m.Done })
}

// Unavailable parses N or N% of a number of nodes. A percentage is rounded down, to at least 1.
func Unavailable(text string, nodes int) (int, error) {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || percent && n > 100 || n > math.MaxInt32 {
		return 0, fmt.Errorf("max-unavailable: %q is not usable: a number of nodes from 1, or a percentage from 1%% to 100%%", text)
	}
	if percent {
		n = max(1, nodes*n/100)
	}
	return n, nil
}

// Same reports whether a machine's report is of the program's build.
func (r *Report) Same(b version.Build) bool { return r != nil && r.Build == b }
