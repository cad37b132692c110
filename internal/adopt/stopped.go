package adopt

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// answerTimeout limits the look for a running API server.
const answerTimeout = 3 * time.Second

// errRunning means that etcd holds the lock of its database.
var errRunning = errors.New("etcd runs on it")

// checkStopped adds refusals for what still runs of kubeadm's control plane.
func (p *Plan) checkStopped(m *machine, api *component) {
	var there []string
	for _, name := range components {
		if file := path.Join(StaticPods, name+".yaml"); m.exists(file) {
			there = append(there, m.host(file))
		}
	}
	if len(there) > 0 {
		parked := m.host(Parked)
		p.refuse("the kubelet runs kubeadm's control plane while its manifests are there. Park them: mkdir -p %s && mv %s %s/", parked, strings.Join(there, " "), parked)
	}
	db, err := m.lockDatabase(p.etcd.DataDir)
	switch {
	case errors.Is(err, errRunning):
		p.refuse("%s: %v. Wait until the kubelet has stopped the pod of etcd, or stop the process", m.host(p.etcd.DataDir), err)
	case err != nil:
		p.refuse("%v", err)
	default:
		_ = db.Close()
	}
	if p.keys == nil || p.keys.ca == nil {
		return
	}
	host, port := api.get("advertise-address", "127.0.0.1"), api.get("secure-port", "6443")
	for _, at := range []string{net.JoinHostPort(host, port), net.JoinHostPort("127.0.0.1", port)} {
		if answers(at, p.keys.ca) {
			p.refuse("the cluster's API server answers at %s. Wait until the kubelet has stopped its pod, or stop the process", at)
			return
		}
	}
}

// answers reports whether a server with a certificate of the CA answers.
func answers(at string, ca *authority) bool {
	ours := errors.New("ours")
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: answerTimeout}, Config: &tls.Config{
		InsecureSkipVerify: true, // the function below judges the certificate, by any name
		VerifyConnection: func(s tls.ConnectionState) error {
			roots := x509.NewCertPool()
			for _, c := range ca.certs {
				roots.AddCert(c)
			}
			if _, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
				return err
			}
			return ours
		},
	}}
	conn, err := dialer.Dial("tcp", at)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, ours)
}

// lockDatabase opens etcd's database and holds a lock that keeps etcd from starting on it.
func (m *machine) lockDatabase(dataDir string) (*os.File, error) {
	f, err := m.open(path.Join(dataDir, "member/snap/db"))
	if err != nil {
		return nil, fmt.Errorf("etcd's database: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errRunning
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
