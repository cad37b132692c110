package framework

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAVersionIsThatOfTheNodeObject(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}}}
	info := NewNodeInfo(node)
	first := info.Version()
	if first == 0 {
		t.Error("there is no version")
	}
	proto, err := info.Proto()
	if err != nil {
		t.Fatal(err)
	}
	var decoded corev1.Node
	if err := decoded.Unmarshal(proto); err != nil || decoded.Name != "node" || decoded.Labels["a"] != "b" || decoded.ManagedFields != nil {
		t.Errorf("the encoding is that of %+v, %v", decoded.ObjectMeta, err)
	}
	if node.ManagedFields == nil {
		t.Error("encoding has changed the node")
	}

	clone := info.Clone()
	clone.AddPod(NewPodInfo(&corev1.Pod{}))
	if again, _ := clone.Proto(); clone.Version() != first || &again[0] != &proto[0] {
		t.Error("a pod on the node changes the version")
	}
	clone.SetNode(node.DeepCopy())
	if clone.Version() == first || info.Version() != first {
		t.Error("another object has the same version")
	}
	clone.SetNode(nil)
	if clone.Version() != 0 {
		t.Error("no object has a version")
	}
	bare := NodeInfo{Node: node}
	if again, err := bare.Proto(); err != nil || bare.Version() != 0 || string(again) != string(proto) {
		t.Errorf("a NodeInfo without a version has another encoding: %v", err)
	}
}
