package adopt

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/config"
)

// copied is a configuration file that is taken over.
type copied struct {
	Flag   string `json:"flag"`
	Source string `json:"source"` // on the kubeadm machine
	Name   string `json:"name"`   // below DATA-DIR/adopted
	data   []byte
}

// judge fills a plan's rows, settings and files from the components' flags.
type judge struct {
	m       *machine
	plan    *Plan
	flags   *pflag.FlagSet // those of `knarr server`, to try values
	without []string
	unused  []string // of without
}

// serverFlags returns the flags of `knarr server`.
func serverFlags() *pflag.FlagSet {
	c := config.Default()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.AddFlags(f, config.Process|config.Server|config.Controlling|config.Joining)
	return f
}

func (j *judge) add(c *component, f flag, v Verdict, note string) {
	name := c.name + "/" + f.name
	if slices.Contains(j.without, name) {
		j.unused = slices.DeleteFunc(j.unused, func(one string) bool { return one == name })
		if v == Refused {
			v = Left
		}
	}
	j.plan.Rows = append(j.plan.Rows, Row{c.name, f.name, f.value, v, note})
}

// set tries a setting and keeps it.
func (j *judge) set(c *component, f flag, setting, value, note string) {
	known := j.flags.Lookup(setting)
	if known == nil {
		j.add(c, f, Refused, "knarr has no such setting")
		return
	}
	if slices.Contains(j.without, c.name+"/"+f.name) {
		j.add(c, f, Refused, "left out by --without")
		return
	}
	if err := j.flags.Set(setting, value); err != nil {
		j.add(c, f, Refused, lastCause(err))
		return
	}
	s := j.plan.settings[known.Name]
	if s == nil || !repeats(known) {
		s = &choice{kind: known.Value.Type()}
		j.plan.settings[known.Name] = s
	}
	s.values = append(s.values, value)
	j.add(c, f, Taken, note)
}

// repeats reports whether giving a flag again adds to its value.
func repeats(f *pflag.Flag) bool {
	_, list := f.Value.(pflag.SliceValue)
	return list || strings.HasPrefix(f.Value.Type(), "stringTo")
}

func lastCause(err error) string {
	text := err.Error()
	if _, cause, found := strings.Cut(text, "flag: "); found {
		return cause
	}
	return text
}

// others judges the flags of kube-controller-manager, kube-scheduler and etcd.
func (j *judge) others(c *component, own map[string]rule, otherwise *rule) {
	for _, f := range c.flags {
		r, ok := own[f.name]
		if !ok && c.name != etcdPod {
			r, ok = shared[f.name]
		}
		switch {
		case !ok && f.name == "feature-gates" && c.name != etcdPod:
			if err := j.flags.Set(f.name, f.value); err != nil {
				j.add(c, f, Refused, lastCause(err))
			} else {
				j.add(c, f, Equivalent, "these gates have the same values here")
			}
		case !ok && strings.HasPrefix(f.name, "concurrent-"):
			j.add(c, f, NoEffect, pacing)
		case !ok && strings.HasSuffix(f.name, "-sync-period"):
			j.add(c, f, NoEffect, pacing)
		case !ok && otherwise != nil:
			j.add(c, f, otherwise.verdict, otherwise.note)
		case !ok:
			j.add(c, f, Refused, "knarr has no such setting")
		case r.only != nil && !slices.Contains(r.only, f.value):
			j.add(c, f, Refused, "it can only be "+strings.Join(r.only, " or ")+": "+r.note)
		case r.verdict != Taken:
			j.add(c, f, r.verdict, r.note)
		case r.setting == "":
			j.set(c, f, f.name, f.value, "")
		default:
			j.set(c, f, r.setting, f.value, "as "+r.setting)
		}
	}
}

// api judges the flags of kube-apiserver.
func (j *judge) api(c *component, k *keys) {
	plain := j.plainFrontProxy(c, k)
	for _, f := range c.flags {
		name := config.UpstreamAlias(f.name)
		note := ""
		if name != f.name {
			note = "as " + name
		}
		hint := config.UpstreamHint(f.name)
		switch {
		case ofStore[f.name] != "":
			j.add(c, f, Equivalent, ofStore[f.name])
		case f.name == "service-account-key-file":
			j.add(c, f, Equivalent, "pki/sa.pub")
		case f.name == "service-account-signing-key-file":
			j.add(c, f, Equivalent, "pki/sa.key")
		case plain && strings.HasPrefix(f.name, "requestheader-"):
			j.add(c, f, Equivalent, "pki/front-proxy-ca.crt, with upstream's headers")
		case f.name == "tls-sni-cert-key":
			j.pairs(c, f)
		case fileFlags[f.name]:
			j.file(c, f, k)
		case pathFlags[f.name] && f.value != "-":
			j.set(c, f, name, c.onHost(f.value), note)
		case hint != "" && (strings.HasPrefix(hint, "leave it out") || strings.HasPrefix(f.name, "log-") || f.name == "vmodule"):
			j.add(c, f, NoEffect, strings.TrimPrefix(hint, "leave it out: "))
		case hint != "":
			j.add(c, f, Refused, hint)
		default:
			j.set(c, f, name, f.value, note)
		}
	}
	if c.get("kubelet-certificate-authority", "") == "" {
		// As upstream: kubeadm's kubelets have certificates that they have signed themselves.
		j.plan.settings["kubelet-skip-verify"] = &choice{kind: "bool", values: []string{"true"}}
	}
}

// plainFrontProxy reports whether the flags about front proxies say what knarr does by itself.
func (j *judge) plainFrontProxy(c *component, k *keys) bool {
	if k == nil || k.frontProxy == nil {
		return true // the reason is reported elsewhere
	}
	for name, value := range map[string]string{
		"requestheader-allowed-names": "front-proxy-client", "requestheader-username-headers": "X-Remote-User",
		"requestheader-group-headers": "X-Remote-Group", "requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"requestheader-uid-headers": "",
	} {
		if c.get(name, value) != value {
			return false
		}
	}
	return true
}

// file copies the file of a flag, unless it holds a key that knarr has anyway.
func (j *judge) file(c *component, f flag, k *keys) {
	source := c.onHost(f.value)
	data, err := j.m.read(source)
	if err != nil {
		j.add(c, f, Refused, err.Error())
		return
	}
	if note := ownKey(f.name, data, c, j.m, k); note != "" {
		j.add(c, f, Equivalent, note)
		return
	}
	name := f.name + path.Ext(source)
	j.plan.files = append(j.plan.files, copied{f.name, source, name, data})
	note := "copied"
	if mayName[f.name] {
		note = "copied; files and sockets that it names stay where they are"
	}
	j.set(c, f, config.UpstreamAlias(f.name), path.Join(j.plan.dataDir, folder, name), note)
}

// ownKey explains why a file is not needed, or returns "".
func ownKey(name string, data []byte, c *component, m *machine, k *keys) string {
	if k == nil || k.ca == nil || k.frontProxy == nil {
		return ""
	}
	signed := func(a *authority, certFile string) bool {
		pem, err := m.read(c.onHost(c.get(certFile, "")))
		if err != nil {
			return false
		}
		certs, err := cert.ParseCertsPEM(pem)
		return err == nil && a.signed(certs[0])
	}
	made := "knarr makes its own, with the same names"
	switch name {
	case "client-ca-file", "kubelet-certificate-authority":
		if sameCertificates(data, k.ca.certs) {
			return "pki/ca.crt"
		}
	case "requestheader-client-ca-file":
		return "" // with other names than the cluster's own
	case "tls-cert-file", "tls-private-key-file":
		if signed(k.ca, "tls-cert-file") {
			return made
		}
	case "kubelet-client-certificate", "kubelet-client-key":
		if signed(k.ca, "kubelet-client-certificate") {
			return made
		}
	case "proxy-client-cert-file", "proxy-client-key-file":
		if signed(k.frontProxy, "proxy-client-cert-file") {
			return made
		}
	}
	return ""
}

func sameCertificates(pem []byte, all []*x509.Certificate) bool {
	found, err := cert.ParseCertsPEM(pem)
	return err == nil && slices.EqualFunc(found, all, func(a, b *x509.Certificate) bool { return bytes.Equal(a.Raw, b.Raw) })
}

// pairs copies the certificate and the key of --tls-sni-cert-key=CERT,KEY:NAMES.
func (j *judge) pairs(c *component, f flag) {
	files, names, _ := strings.Cut(f.value, ":")
	certFile, keyFile, ok := strings.Cut(files, ",")
	if !ok {
		j.add(c, f, Refused, "CERT,KEY or CERT,KEY:NAMES is expected")
		return
	}
	var to []string
	for _, inside := range []string{certFile, keyFile} {
		source := c.onHost(inside)
		data, err := j.m.read(source)
		if err != nil {
			j.add(c, f, Refused, err.Error())
			return
		}
		name := fmt.Sprintf("%s-%d%s", f.name, len(j.plan.files), path.Ext(source))
		j.plan.files = append(j.plan.files, copied{f.name, source, name, data})
		to = append(to, path.Join(j.plan.dataDir, folder, name))
	}
	value := strings.Join(to, ",")
	if names != "" {
		value += ":" + names
	}
	j.set(c, f, f.name, value, "copied")
}
