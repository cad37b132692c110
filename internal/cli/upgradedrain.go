package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/drain"

	"github.com/knarr-project/knarr/internal/upgrade"
)

// drainNode cordons a node and evicts its pods, as `kubectl drain` does: PodDisruptionBudgets are
// obeyed, and DaemonSets' pods stay. release uncordons the node, unless it
// was cordoned before.
func (u *upgrading) drainNode(ctx context.Context, name string) (release func() error, err error) {
	node, err := u.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	_, ours := node.Annotations[upgrade.CordonedAnnotation]
	if node.Spec.Unschedulable && !ours {
		release = func() error { return nil }
	} else {
		if err := u.cordon(ctx, name, true); err != nil {
			return nil, fmt.Errorf("cordon: %w", err)
		}
		release = func() error {
			if err := u.cordon(ctx, name, false); err != nil {
				return fmt.Errorf("uncordon: %w", err)
			}
			return nil
		}
	}
	u.say("node %s: draining", name)
	h := &drain.Helper{
		Ctx: ctx, Client: u.kube, Force: u.force, DeleteEmptyDirData: u.deleteEmptyDir, IgnoreAllDaemonSets: true, GracePeriodSeconds: -1,
		Timeout: u.drainTimeout, Out: io.Discard, ErrOut: io.Discard,
		OnPodDeletionOrEvictionFinished: func(pod *corev1.Pod, _ bool, err error) {
			if err == nil {
				u.say("node %s: evicted %s/%s", name, pod.Namespace, pod.Name)
			}
		},
	}
	if err := drain.RunNodeDrain(h, name); err != nil {
		return nil, errors.Join(fmt.Errorf("drain: %w; --drain=false leaves the pods where they are", err), release())
	}
	return release, nil
}

// uncordonDone uncordons the nodes that an interrupted upgrade has upgraded and left cordoned.
func (u *upgrading) uncordonDone(ctx context.Context, plan *upgrade.Plan) error {
	for _, m := range slices.Concat(plan.Servers, plan.Nodes) {
		if !m.Done || !m.Cordoned {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, u.machineTimeout)
		err := u.awaitNode(limited, m.Node)
		if err == nil {
			err = u.cordon(limited, m.Node, false)
		}
		cancel()
		if err != nil {
			return &stoppedError{m, err}
		}
		u.say("node %s: uncordoned", m.Node)
	}
	return nil
}

// cordon makes a node unschedulable with a mark, or schedulable again without it.
func (u *upgrading) cordon(ctx context.Context, name string, on bool) error {
	var mark any
	if on {
		mark = "true"
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{upgrade.CordonedAnnotation: mark}}, "spec": map[string]any{"unschedulable": on}})
	if err != nil {
		return err
	}
	for { // the server may restart
		_, err = u.kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil || u.pause(ctx) != nil {
			return err
		}
	}
}

// awaitNode waits until a node is Ready and has renewed its lease. It compares no clocks.
func (u *upgrading) awaitNode(ctx context.Context, name string) error {
	var first *metav1.MicroTime
	last := errors.New("the server does not answer")
	for {
		node, err := u.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			lease, leaseErr := u.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
			switch {
			case leaseErr != nil:
				last = leaseErr
			case lease.Spec.RenewTime == nil || first == nil || lease.Spec.RenewTime.Equal(first):
				if first == nil {
					first = lease.Spec.RenewTime
				}
				last = errors.New("the node has not renewed its lease")
			case !nodeReady(node):
				last = errors.New("the node is not Ready")
			default:
				return nil
			}
		}
		if err := u.pause(ctx); err != nil {
			return fmt.Errorf("not within %s: %w", u.machineTimeout, last)
		}
	}
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
