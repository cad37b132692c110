package adopt

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Names of kubeadm's static pods, in the order of the table.
const (
	apiserver  = "kube-apiserver"
	controller = "kube-controller-manager"
	scheduler  = "kube-scheduler"
	etcdPod    = "etcd"
)

var components = []string{apiserver, controller, scheduler, etcdPod}

// flag is one flag of a component's command line.
type flag struct{ name, value string }

// component is a static pod of the control plane.
type component struct {
	name  string
	image string
	flags []flag
	// mounts maps folders and files in the container to those of the machine.
	mounts map[string]string
}

// parseComponent reads the manifest of a static pod.
func parseComponent(name string, data []byte) (*component, error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal(data, &pod); err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", name, err)
	}
	if pod.Kind != "Pod" || len(pod.Spec.Containers) == 0 {
		return nil, fmt.Errorf("manifest of %s: a Pod with a container is expected", name)
	}
	container := &pod.Spec.Containers[0]
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			container = &pod.Spec.Containers[i]
		}
	}
	c := &component{name: name, image: container.Image, mounts: map[string]string{}}
	line := append(append([]string{}, container.Command...), container.Args...)
	if len(line) == 0 || path.Base(line[0]) != name {
		return nil, fmt.Errorf("manifest of %s: the command must begin with %s", name, name)
	}
	var err error
	if c.flags, err = parseFlags(line[1:]); err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", name, err)
	}
	folders := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			folders[v.Name] = v.HostPath.Path
		}
	}
	for _, m := range container.VolumeMounts {
		if host, ok := folders[m.Name]; ok {
			c.mounts[path.Clean(m.MountPath)] = path.Join(host, m.SubPath)
		}
	}
	return c, nil
}

// parseFlags accepts --name=value, --name value, and --name, which means true.
func parseFlags(words []string) ([]flag, error) {
	var out []flag
	for i := 0; i < len(words); i++ {
		word, ok := strings.CutPrefix(words[i], "-")
		if !ok || word == "" || word == "-" {
			return nil, fmt.Errorf("%q is no flag", words[i])
		}
		name, value, found := strings.Cut(strings.TrimPrefix(word, "-"), "=")
		switch {
		case found:
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			i++
			value = words[i]
		default:
			value = "true"
		}
		out = append(out, flag{name, value})
	}
	return out, nil
}

// get returns the last value of a flag, or another one if it is not given.
func (c *component) get(name, otherwise string) string {
	value := otherwise
	for _, f := range c.flags {
		if f.name == name {
			value = f.value
		}
	}
	return value
}

// all returns all values of a flag that can be repeated.
func (c *component) all(name string) (values []string) {
	for _, f := range c.flags {
		if f.name == name {
			values = append(values, f.value)
		}
	}
	return values
}

// onHost returns the machine's path of a path in the container.
func (c *component) onHost(inside string) string {
	inside = path.Clean("/" + inside)
	for folder := inside; ; folder = path.Dir(folder) {
		if host, ok := c.mounts[folder]; ok {
			return path.Join(host, strings.TrimPrefix(inside, folder))
		}
		if folder == "/" {
			return inside
		}
	}
}

var imageVersion = regexp.MustCompile(`:v?(\d+)\.(\d+)\.(\d+)[^:/@]*(?:@sha256:[0-9a-f]{64})?$`)

// version is MAJOR.MINOR.PATCH.
type version struct{ major, minor, patch int }

func (v version) String() string { return fmt.Sprintf("v%d.%d.%d", v.major, v.minor, v.patch) }

// versionOf returns the version in an image's tag, or in a bare version.
func versionOf(image string) (version, bool) {
	found := imageVersion.FindStringSubmatch(":" + image)
	if found == nil {
		return version{}, false
	}
	var n [3]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(found[i+1]); err != nil {
			return version{}, false
		}
	}
	return version{n[0], n[1], n[2]}, true
}
