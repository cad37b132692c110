package sources

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: c, image: i}
`

func TestManifestsBecomePodsOfThisNode(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("web.yaml", manifest)
	write("broken.yaml", "kind: [")
	write(".hidden.yaml", manifest)
	f := &File{Path: dir, NodeName: "Node", Period: time.Hour, Log: slog.New(slog.DiscardHandler)}
	got := make(chan []*corev1.Pod, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { f.Run(ctx, func(p []*corev1.Pod) { got <- p }); close(ended) }()
	pods := <-got
	if len(pods) != 1 {
		t.Fatalf("%d pods, want 1", len(pods))
	}
	p := pods[0]
	if p.Name != "web-node" || p.Namespace != "default" || p.UID == "" || p.Annotations["kubernetes.io/config.source"] != "file" ||
		p.Annotations["kubernetes.io/config.hash"] != string(p.UID) || p.Spec.NodeName != "Node" || p.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("pod: %+v", p)
	}
	write("web.yaml", manifest+"  hostNetwork: true\n")
	for deadline := time.After(time.Minute); ; {
		select {
		case pods = <-got:
		case <-deadline:
			t.Fatal("the change was not seen")
		}
		if len(pods) == 1 && pods[0].UID != p.UID {
			break
		}
	}
	cancel()
	<-ended
}

func TestAManifestCannotClaimAnotherSource(t *testing.T) {
	pods, err := parse([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {kubernetes.io/config.source: api}}\nspec: {containers: [{name: c, image: i}]}\n"), "file", "/a", "n")
	if err != nil || len(pods) != 1 || pods[0].Annotations[spec.AnnotationConfigSource] != "file" || pods[0].Spec.NodeName != "n" || pods[0].Name != "a-n" {
		t.Errorf("%v %v", pods, err)
	}
}
