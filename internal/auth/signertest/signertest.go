// Package signertest is an external signer for tests.
package signertest

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwt "k8s.io/externaljwt/apis/v1"
)

// Server is a running signer. Change changes its answers.
type Server struct {
	externaljwt.UnimplementedExternalJWTSignerServer
	Socket string

	mu      sync.Mutex
	answers Answers
	key     *rsa.PrivateKey
	server  *grpc.Server
}

// Stop stops the signer before the end of the test.
func (s *Server) Stop() { s.server.Stop() }

// Answers holds the signer's answers.
type Answers struct {
	MaxExpiration int64 // seconds
	Keys          *externaljwt.FetchKeysResponse
	Header        string // of tokens, in JSON
	Signature     func(signed string) []byte
	Err           error // returned by every call if set
}

// Start runs a signer with one RSA key, k1, until the test ends.
func Start(t *testing.T) *Server {
	t.Helper()
	return StartAt(t, filepath.Join(t.TempDir(), "s"))
}

// StartAt is Start at the given socket, which is abstract if it begins with '@'.
func StartAt(t *testing.T, socket string) *Server {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Socket: socket, key: key}
	s.answers = Answers{MaxExpiration: 86400, Header: `{"alg":"RS256","kid":"k1","typ":"JWT"}`, Signature: s.sign}
	s.answers.Keys = &externaljwt.FetchKeysResponse{Keys: []*externaljwt.Key{s.Key("k1")}, DataTimestamp: timestamppb.New(time.Unix(1e9, 0)), RefreshHintSeconds: 3600}
	listener, err := net.Listen("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	s.server = grpc.NewServer()
	externaljwt.RegisterExternalJWTSignerServer(s.server, s)
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// Key returns the signer's key under the given name.
func (s *Server) Key(id string) *externaljwt.Key {
	der, err := x509.MarshalPKIXPublicKey(s.key.Public())
	if err != nil {
		panic(err) // cannot fail for an RSA key
	}
	return &externaljwt.Key{KeyId: id, Key: der}
}

func (s *Server) sign(signed string) []byte {
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, s.key, crypto.SHA256, digest[:])
	if err != nil {
		panic(err) // cannot fail for an RSA key
	}
	return signature
}

// Change changes the answers from now on.
func (s *Server) Change(change func(*Answers)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.answers)
}

func (s *Server) now() Answers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers
}

// Metadata implements externaljwt.ExternalJWTSignerServer.
func (s *Server) Metadata(context.Context, *externaljwt.MetadataRequest) (*externaljwt.MetadataResponse, error) {
	a := s.now()
	return &externaljwt.MetadataResponse{MaxTokenExpirationSeconds: a.MaxExpiration}, a.Err
}

// FetchKeys implements externaljwt.ExternalJWTSignerServer.
func (s *Server) FetchKeys(context.Context, *externaljwt.FetchKeysRequest) (*externaljwt.FetchKeysResponse, error) {
	a := s.now()
	return a.Keys, a.Err
}

// Sign implements externaljwt.ExternalJWTSignerServer.
func (s *Server) Sign(_ context.Context, r *externaljwt.SignJWTRequest) (*externaljwt.SignJWTResponse, error) {
	a := s.now()
	header := base64.RawURLEncoding.EncodeToString([]byte(a.Header))
	return &externaljwt.SignJWTResponse{Header: header, Signature: base64.RawURLEncoding.EncodeToString(a.Signature(header + "." + r.Claims))}, a.Err
}
