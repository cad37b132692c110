// Package s3test starts a real S3 server for tests: versitygw, which the module test/s3 pins.
package s3test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The server's only account.
const (
	AccessKey = "knarr-test"
	SecretKey = "knarr-test-secret"
)

// Server is a running server.
type Server struct {
	URL    string // https
	CA     string // file with the CA of its certificate
	Folder string // with a folder for each bucket; an object is a file in it
	// Credentials is a file in AWS's format.
	Credentials string

	t       testing.TB
	program string
	address string
	cmd     *exec.Cmd
}

var (
	once    sync.Once
	program string
	buildOf error
)

// build returns the path of the program, which Go's cache keeps.
func build() (string, error) {
	once.Do(func() {
		root, err := exec.Command("go", "env", "GOMOD").Output()
		if err != nil {
			buildOf = err
			return
		}
		cmd := exec.Command("go", "tool", "-n", "versitygw")
		cmd.Dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(root))), "test", "s3")
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if os.Getenv("KNARR_S3") == "" {
			cmd.Env = append(cmd.Env, "GOPROXY=off", "GOFLAGS=-mod=mod -trimpath -buildvcs=false")
		}
		var complaint bytes.Buffer
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err != nil {
			buildOf = errors.Join(err, errors.New(complaint.String()))
			return
		}
		program = strings.TrimSpace(string(out))
	})
	return program, buildOf
}

// Start starts a server with empty buckets, which ends with the test. It skips the test if the
// server is not in Go's cache; `make s3` puts it there, and fails instead.
func Start(t testing.TB, buckets ...string) *Server {
	t.Helper()
	path, err := build()
	if err != nil {
		if os.Getenv("KNARR_S3") != "" {
			t.Fatal(err)
		}
		t.Skipf("no S3 server in Go's cache (make s3): %v", err)
	}
	dir := t.TempDir()
	s := &Server{t: t, program: path, CA: filepath.Join(dir, "ca.pem"), Folder: filepath.Join(dir, "buckets"), Credentials: filepath.Join(dir, "credentials")}
	for _, bucket := range buckets {
		if err := os.MkdirAll(filepath.Join(s.Folder, bucket), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text := "[default]\naws_access_key_id = " + AccessKey + "\naws_secret_access_key = " + SecretKey + "\n"
	if err := os.WriteFile(s.Credentials, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "key.pem")
	if err := certificate(s.CA, key); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	s.URL = "https://" + s.address
	_ = l.Close()
	s.run(key)
	t.Cleanup(s.Stop)
	return s
}

func (s *Server) run(key string) {
	s.t.Helper()
	s.cmd = exec.Command(s.program, "--quiet", "--port", s.address, "--cert", s.CA, "--key", key,
		"--access", AccessKey, "--secret", SecretKey, "posix", "--sidecar", filepath.Join(filepath.Dir(s.CA), "sidecar"), s.Folder)
	if err := os.MkdirAll(filepath.Join(filepath.Dir(s.CA), "sidecar"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	var said bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &said, &said
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
		if err == nil {
			_ = c.Close()
			return
		}
		if ctx.Err() != nil {
			s.Stop()
			s.t.Fatalf("the S3 server does not answer: %v\n%s", err, said.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Stop ends the server.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func certificate(cert, key string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "s3test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600),
	)
}
