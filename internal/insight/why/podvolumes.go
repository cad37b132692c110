package why

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Causes of pods whose volumes or sandbox cannot be set up.
const (
	causeMount        = "volume-mount"
	causeAttach       = "volume-attach"
	causeMultiAttach  = "volume-multi-attach"
	causeHostPath     = "volume-host-path"
	causeReadOnly     = "volume-read-only"
	causeVolumeDriver = "volume-driver-absent"
	causeSandbox      = "pod-sandbox"
	causeNodeSilent   = "pod-node-silent"
)

// mountErrors classify the messages of FailedMount and FailedAttachVolume events.
var mountErrors = []struct{ cause, words, problem, remedy string }{
	{causeMultiAttach, "multi-attach", "its volume is attached to another node, and may be attached to one at a time.", "Delete the pod on the other node, or use a volume with access mode ReadWriteMany."},
	{causeHostPath, "hostpath type check failed", "the node does not have the path of its hostPath volume.", "Create the path on the node, or set the volume's type to DirectoryOrCreate."},
	{causeVolumeDriver, "not found in the list of registered csi drivers", "the node does not run the CSI driver of its volume.", "Install the driver's node plugin on this node."},
	{causeReadOnly, "read-only file system", "a file system that it needs is read-only.", "Mount the volume writable, or repair the file system."},
}

// podSetup explains a pod that its node does not start: volumes, sandbox, or a node that is silent.
func podSetup(s *Snapshot, p *corev1.Pod) []Finding {
	if p.Spec.NodeName == "" || podOver(p) || p.DeletionTimestamp != nil || !waitsToStart(p) || podConfig(s, p) != nil {
		return nil
	}
	ref := refTo(p)
	for _, e := range s.events(ref) {
		text := oneLine(e.Message)
		lower := strings.ToLower(text)
		f := Finding{Evidence: []Fact{{Text: "event " + e.Reason + ": " + text}}}
		switch e.Reason {
		case "FailedMount", "FailedAttachVolume":
			f.Cause, f.Problem, f.Remedy = causeMount, "a volume cannot be mounted.", "Read the event's message; check the claim and the storage driver."
			if e.Reason == "FailedAttachVolume" {
				f.Cause, f.Problem = causeAttach, "a volume cannot be attached to node/"+p.Spec.NodeName+"."
			}
			for _, m := range mountErrors {
				if strings.Contains(lower, m.words) {
					f.Cause, f.Problem, f.Remedy = m.cause, m.problem, m.remedy
					break
				}
			}
			return []Finding{f}
		case "FailedCreatePodSandBox":
			f.Cause, f.Problem, f.Remedy = causeSandbox, "the node cannot make its sandbox (network, namespaces).", "Check the pod network on the node."
			return []Finding{f}
		case "Pulled", "Started", "Created":
			return nil
		}
	}
	started := podCondition(p, corev1.PodScheduled)
	if len(p.Status.ContainerStatuses) == 0 && started != nil && s.Now.Sub(started.LastTransitionTime.Time) > 10*time.Second {
		f := linked(causeNodeSilent, "node/"+p.Spec.NodeName+" has not begun to start it.", Link{Object: Ref{"Node", "", p.Spec.NodeName}, Only: nodeCauses(causeNodesUnwell)})
		f.Remedy = "Check the node agent on this node."
		return []Finding{f}
	}
	return nil
}
