package run

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controllers/certificates"
)

// A node's name belongs to the machine that has the key of its client certificate. An annotation of
// the Node names the key. The cluster refuses bootstrapping machines with another key
// (internal/controllers/certificates). This file is the node's side: it writes the annotation, and
// refuses to work as a Node of another machine.

// owned returns an error if the Node belongs to another machine. A Node without an owner is
// accepted.
func (j *joined) owned(n *corev1.Node) error {
	for _, key := range j.node.keys() {
		if claimed, ours := certificates.Claimed(n, key); !claimed || ours {
			return nil
		}
	}
	return fmt.Errorf("node %q now belongs to another machine: start this one with another --node-name and a token, or, if the other one is gone for good, run `kubectl delete node %s` and start this one again", n.Name, n.Name)
}

// annotations claims the node's name when the node registers, and tells that its parts have an
// account.
func (j *joined) annotations() map[string]string {
	annotations := map[string]string{certificates.NodeKeysAnnotation: keyHash(j.node.current.Load())}
	if j.account {
		annotations[auth.NodeAccountAnnotation] = auth.NodeAccount
	}
	return annotations
}

// check verifies before the start that the name still belongs to this machine. If the server does
// not answer, the start continues, and the node agent checks again when it registers.
func (j *joined) check(ctx context.Context) error {
	c, err := client.Remote(j.config())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n, err := client.Get[*corev1.Node](ctx, c, "", j.cfg.NodeName)
	if err != nil {
		if !apierrors.IsNotFound(err) {
			j.log.Warn("cannot read this node's object yet", "node", j.cfg.NodeName, "error", err)
		}
		return nil
	}
	return j.owned(n)
}

// claim writes the keys that the node may use from now on. It runs before a new key is stored, so
// after a crash the machine has a key that the Node names.
func claim(ctx context.Context, c client.Interface, node string, keys ...string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{certificates.NodeKeysAnnotation: strings.Join(keys, ",")}}})
	if err != nil {
		return err
	}
	_, err = client.Patch[*corev1.Node](ctx, c, "", node, types.MergePatchType, patch)
	if apierrors.IsNotFound(err) {
		return nil // the node agent claims the name when it registers
	}
	if err != nil {
		return fmt.Errorf("name the new key in node %s: %w", node, err)
	}
	return nil
}
