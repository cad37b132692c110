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
	partSize = 32 << 20
	// unfinishedAge is the age after which an unfinished upload is of a killed process.
	unfinishedAge = 24 * time.Hour
)

// S3 is a place in a bucket.
type S3 struct {
	client         *minio.Client
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
	return &S3{client: c, bucket: o.Bucket, prefix: strings.Trim(o.Prefix, "/")}, nil
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing after an error
	found, records := []Entry{}, map[string]bool{}
	prefix := s.key("")
	for object := range s.client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix}) {
		if object.Err != nil {
			return nil, s.failed("list", "", object.Err)
		}
		name := strings.TrimPrefix(object.Key, prefix)
		if of, ok := strings.CutSuffix(name, recordEnding); ok && IsName(of) {
			records[of] = true
		} else if IsName(name) {
			found = append(found, Entry{Name: name, Size: object.Size, Modified: object.LastModified})
		}
	}
	if err := ctx.Err(); err != nil {
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
	name := e.Name + recordEnding
	object, err := s.client.GetObject(ctx, s.bucket, s.key(name), minio.GetObjectOptions{})
	if err != nil {
		return s.failed("read", name, err)
	}
	defer object.Close()
	if _, err := object.Stat(); err != nil {
		if err = s.failed("read", name, err); errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	}
	e.Record, e.Problem = decodeRecord(object, e.Name)
	return nil
}

// Get returns one snapshot's entry.
func (s *S3) Get(ctx context.Context, name string) (Entry, error) {
	info, err := s.client.StatObject(ctx, s.bucket, s.key(name), minio.StatObjectOptions{})
	if err != nil {
		return Entry{}, s.failed("find", name, err)
	}
	e := Entry{Name: name, Size: info.Size, Modified: info.LastModified}
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
	_, err = s.client.PutObject(ctx, s.bucket, s.key(name), f, t.Record.Size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: partSize, NumThreads: 2, AutoChecksum: minio.ChecksumCRC32C,
	})
	if err != nil {
		return s.failed("upload", name, err)
	}
	info, err := s.client.StatObject(ctx, s.bucket, s.key(name), minio.StatObjectOptions{})
	if err != nil {
		return s.failed("upload", name, err)
	}
	if info.Size != t.Record.Size {
		return fmt.Errorf("upload %s: it has %d bytes there, %d here", s.At(name), info.Size, t.Record.Size)
	}
	_, err = s.client.PutObject(ctx, s.bucket, s.key(name+recordEnding), bytes.NewReader(record), int64(len(record)), minio.PutObjectOptions{ContentType: "application/json"})
	if err != nil {
		return s.failed("upload", name+recordEnding, err)
	}
	return nil
}

// Open reads a snapshot's file.
func (s *S3) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	object, err := s.client.GetObject(ctx, s.bucket, s.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, s.failed("download", name, err)
	}
	return s3Reader{object, s, name}, nil
}

// s3Reader names the object in errors.
type s3Reader struct {
	*minio.Object
	place *S3
	name  string
}

func (r s3Reader) Read(p []byte) (int, error) {
	n, err := r.Object.Read(p)
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
	err := s.client.RemoveObject(ctx, s.bucket, s.key(name), minio.RemoveObjectOptions{})
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := s.key("")
	for upload := range s.client.ListIncompleteUploads(ctx, s.bucket, prefix, true) {
		if upload.Err != nil {
			return s.failed("list unfinished uploads of", "", upload.Err)
		}
		name := strings.TrimPrefix(upload.Key, prefix)
		if !IsName(name) || time.Since(upload.Initiated) < unfinishedAge {
			continue
		}
		if err := s.client.RemoveIncompleteUpload(ctx, s.bucket, upload.Key); err != nil {
			return s.failed("remove the unfinished upload of", name, err)
		}
	}
	return nil
}
