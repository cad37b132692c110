package snapshots

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Options say how to reach a bucket.
type S3Options struct {
	// Endpoint is a host, host:port or URL; http:// is without TLS. Default: AWS.
	Endpoint string
	Bucket   string
	Prefix   string // a folder in the bucket, without slashes at its ends
	Region   string
	// Credentials is a file in the format of AWS (~/.aws/credentials). Default: AWS_ACCESS_KEY_ID
	// and AWS_SECRET_ACCESS_KEY of the environment.
	Credentials string
	CA          string // PEM file; default: the machine's
	PathStyle   bool   // the bucket is in the URL's path, not in the host's name
}

const (
	awsEndpoint = "s3.amazonaws.com"
	// s3Retries bounds how often a request is sent.
	s3Retries = 5
	// partSize is the size of parts of a large upload.
	partSize = 16 << 20
	// unfinishedAge is the age after which an unfinished upload is of a killed process.
	unfinishedAge = 24 * time.Hour
)

// S3 is a place in a bucket.
type S3 struct {
	calls          s3Calls
	bucket, prefix string
}

var _ Place = (*S3)(nil)

// NewS3 prepares access to a bucket, without asking it.
func NewS3(o S3Options) (*S3, error) {
	if o.Bucket == "" {
		return nil, errors.New("snapshot-s3-bucket is missing")
	}
	secure, host := true, o.Endpoint
	if host == "" {
		host = awsEndpoint
	}
	if strings.Contains(host, "://") {
		u, err := url.Parse(host)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("snapshot-s3-endpoint: %q is not usable: a host, host:port, or a URL such as https://s3.example.com", o.Endpoint)
		}
		secure, host = u.Scheme == "https", u.Host
	}
	creds, err := s3Credentials(o.Credentials)
	if err != nil {
		return nil, err
	}
	transport, err := s3Transport(o.CA)
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	if o.PathStyle {
		lookup = minio.BucketLookupPath
	}
	c, err := minio.New(host, &minio.Options{Creds: creds, Secure: secure, Region: o.Region, BucketLookup: lookup, Transport: transport, MaxRetries: s3Retries, TrailingHeaders: true})
	if err != nil {
		return nil, fmt.Errorf("snapshot-s3-endpoint: %q: %w", o.Endpoint, err)
	}
	c.SetAppInfo("knarr", "1")
	return &S3{calls: newS3Calls(c, o.Bucket), bucket: o.Bucket, prefix: strings.Trim(o.Prefix, "/")}, nil
}

func s3Credentials(file string) (*credentials.Credentials, error) {
	if file == "" {
		if os.Getenv("AWS_ACCESS_KEY_ID") == "" || os.Getenv("AWS_SECRET_ACCESS_KEY") == "" {
			return nil, errors.New("no credentials for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or --snapshot-s3-credentials-file")
		}
		return credentials.NewEnvAWS(), nil
	}
	creds := credentials.NewFileAWSCredentials(file, "")
	value, err := creds.GetWithContext(nil)
	if err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
		return nil, fmt.Errorf("snapshot-s3-credentials-file: %s is not usable: a section [default] with aws_access_key_id and aws_secret_access_key", file)
	}
	return creds, nil
}

func s3Transport(ca string) (http.RoundTripper, error) {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 2 * time.Minute, IdleConnTimeout: 10 * time.Second, MaxIdleConnsPerHost: 4,
		DisableCompression: true,
		TLSClientConfig:    &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if ca == "" {
		return t, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("snapshot-s3-ca: %w", err)
	}
	t.TLSClientConfig.RootCAs = x509.NewCertPool()
	if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("snapshot-s3-ca: %s holds no certificate", ca)
	}
	return t, nil
}

// findS3 reads BUCKET/PREFIX or BUCKET/PREFIX/NAME.
func findS3(word string, o S3Options) (Place, string, error) {
	name := ""
	if word != "" {
		var key string
		o.Bucket, key, _ = strings.Cut(word, "/")
		o.Prefix = key
		if last := path.Base(key); IsName(last) {
			name, o.Prefix = last, strings.TrimSuffix(key, last)
		}
	}
	s, err := NewS3(o)
	if err != nil {
		return nil, "", err
	}
	return s, name, nil
}

func (s *S3) key(name string) string { return strings.TrimPrefix(s.prefix+"/"+name, "/") }

func (s *S3) String() string { return "s3://" + strings.TrimSuffix(s.bucket+"/"+s.prefix, "/") }

func (s *S3) At(name string) string { return "s3://" + s.bucket + "/" + s.key(name) }

func (s *S3) failed(what, name string, err error) error {
	var response minio.ErrorResponse
	if errors.As(err, &response) && response.Code == minio.NoSuchKey {
		return fmt.Errorf("%w: %s", ErrNotFound, s.At(name))
	}
	return fmt.Errorf("%s %s: %w", what, s.At(name), err)
}

// List asks for pages of names until there are no more, then for the records.
func (s *S3) List(ctx context.Context) ([]Entry, error) {
	found, records := []Entry{}, map[string]bool{}
	prefix := s.key("")
	err := s.calls.list(ctx, prefix, func(key string, size int64, modified time.Time) {
		name := strings.TrimPrefix(key, prefix)
		if of, ok := strings.CutSuffix(name, recordEnding); ok && IsName(of) {
			records[of] = true
		} else if IsName(name) {
			found = append(found, Entry{Name: name, Size: size, Modified: modified})
		}
	})
	if err != nil {
		return nil, s.failed("list", "", err)
	}
	for i := range found {
		if records[found[i].Name] {
			if err := s.record(ctx, &found[i]); err != nil {
				return nil, err
			}
		}
	}
	sortByTime(found)
	return found, nil
}

// record reads the entry's record, if there is one.
func (s *S3) record(ctx context.Context, e *Entry) error {
	in, err := s.Open(ctx, e.Name+recordEnding)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	e.Record, e.Problem = decodeRecord(in, e.Name)
	return nil
}

// Get returns one snapshot's entry.
func (s *S3) Get(ctx context.Context, name string) (Entry, error) {
	size, modified, err := s.calls.stat(ctx, s.key(name))
	if err != nil {
		return Entry{}, s.failed("find", name, err)
	}
	e := Entry{Name: name, Size: size, Modified: modified}
	return e, s.record(ctx, &e)
}

// Put uploads the file, then its record. S3 shows an object when all of it is there. The server
// verifies a checksum of each part.
func (s *S3) Put(ctx context.Context, t *Taken) error {
	record, err := t.Record.encode()
	if err != nil {
		return err
	}
	f, err := os.Open(t.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	name := t.Record.Name
	// A record of an older file of this name would not fit.
	if err := s.remove(ctx, name+recordEnding); err != nil {
		return err
	}
	if err := s.calls.put(ctx, s.key(name), "application/octet-stream", f, t.Record.Size); err != nil {
		return s.failed("upload", name, err)
	}
	size, _, err := s.calls.stat(ctx, s.key(name))
	if err != nil {
		return s.failed("upload", name, err)
	}
	if size != t.Record.Size {
		return fmt.Errorf("upload %s: it has %d bytes there, %d here", s.At(name), size, t.Record.Size)
	}
	if err := s.calls.put(ctx, s.key(name+recordEnding), "application/json", bytes.NewReader(record), int64(len(record))); err != nil {
		return s.failed("upload", name+recordEnding, err)
	}
	return nil
}

// Open reads a snapshot's file.
func (s *S3) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := s.calls.read(ctx, s.key(name))
	if err != nil {
		return nil, s.failed("download", name, err)
	}
	return s3Reader{in, s, name}, nil
}

// s3Reader names the object in errors.
type s3Reader struct {
	io.ReadCloser
	place *S3
	name  string
}

func (r s3Reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = r.place.failed("download", r.name, err)
	}
	return n, err
}

// Remove removes the file first: a record alone is not listed.
func (s *S3) Remove(ctx context.Context, name string) error {
	if err := s.remove(ctx, name); err != nil {
		return err
	}
	return s.remove(ctx, name+recordEnding)
}

func (s *S3) remove(ctx context.Context, name string) error {
	err := s.calls.remove(ctx, s.key(name))
	if err == nil {
		return nil
	}
	if err = s.failed("remove", name, err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Tidy removes uploads that killed processes have not finished.
func (s *S3) Tidy(ctx context.Context) error {
	prefix := s.key("")
	err := s.calls.unfinished(ctx, prefix, func(key string, begun time.Time) error {
		if !IsName(strings.TrimPrefix(key, prefix)) || time.Since(begun) < unfinishedAge {
			return nil
		}
		return s.calls.abort(ctx, key)
	})
	if err != nil {
		return s.failed("remove unfinished uploads of", "", err)
	}
	return nil
}
