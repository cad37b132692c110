package adopt

import "testing"

const podText = `{apiVersion: v1, kind: Pod, metadata: {name: etcd}, spec: {containers: [{name: etcd, image: "registry.k8s.io/etcd:3.6.8-0",
  command: [etcd, --name=one, "--data-dir=/data/etcd", --flag, two, -v, --on], volumeMounts: [{name: d, mountPath: /data}]}],
  volumes: [{name: d, hostPath: {path: /srv}}]}}`

func TestAManifestTellsFlagsAndPlaces(t *testing.T) {
	c, err := parseComponent("etcd", []byte(podText))
	if err != nil {
		t.Fatal(err)
	}
	m := etcdMember(c)
	if m.Name != "one" || m.DataDir != "/srv/etcd" || c.get("flag", "") != "two" || c.get("v", "") != "true" || c.get("on", "") != "true" {
		t.Errorf("got %+v and %+v", m, c.flags)
	}
	if v, ok := versionOf(c.image); !ok || v.String() != "v3.6.8" {
		t.Errorf("got version %s, %v", v, ok)
	}
	if _, ok := versionOf("host:5000/kube-apiserver"); ok {
		t.Error("a port was taken for a version")
	}
}

func FuzzManifest(f *testing.F) {
	f.Add(podText)
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := parseComponent("etcd", []byte(text)); err == nil {
			c.onHost(etcdMember(c).DataDir)
			initialMembers(c)
		}
	})
}
