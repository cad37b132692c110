package images

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/credentials"
)

// plug gives the machine a plugin with the registry's password. With accounts, it is asked for the
// service account of the pod's namespace.
func (m *machine) plug(accounts bool) (asked *int) {
	asked = new(int)
	m.manager.Plugins = func(_ context.Context, pod *corev1.Pod, image string) ([]credentials.Credential, error) {
		*asked++
		if image != "registry.example.com/team/app" {
			m.t.Errorf("asked for %q", image)
		}
		c := credentials.Credential{Pattern: "registry.example.com", Username: "u", Password: "open"}
		if accounts {
			if pod.Namespace == "green" {
				return nil, nil
			}
			c.Account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "default", UID: types.UID("sa-" + pod.Namespace)}}
		}
		return []credentials.Credential{c}, nil
	}
	return asked
}

func TestCredentialsOfTheNodeOpenAnImageToAllPods(t *testing.T) {
	m := newMachine(t)
	asked := m.plug(false)
	m.expect("blue", corev1.PullIfNotPresent, "", 1)
	m.expect("green", corev1.PullIfNotPresent, "", 0)
	if *asked != 1 {
		t.Errorf("the plugin was asked %d times", *asked)
	}
	m.restart()
	m.expect("green", corev1.PullNever, "", 0)
}

func TestCredentialsOfAServiceAccountOpenAnImageToItsPods(t *testing.T) {
	m := newMachine(t)
	m.plug(true)
	m.expect("blue", corev1.PullIfNotPresent, "", 1)
	m.expect("blue", corev1.PullNever, "", 0)
	m.expect("green", corev1.PullNever, ReasonNeverPull, 0)
	m.restart()
	m.plug(true)
	m.expect("blue", corev1.PullNever, "", 0)
	m.expect("red", corev1.PullIfNotPresent, "", 1) // by its secret
	m.expect("red", corev1.PullNever, "", 0)
	m.expect("blue", corev1.PullNever, "", 0)
}
