package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	jsonType     = "application/json"
	mergePatch   = "application/merge-patch+json"
)

// clients access a cluster: client-go without limits for what is not measured, and wires for the
// load.
type clients struct {
	set     *kubernetes.Clientset
	address string
	tls     *tls.Config
	token   string // of a service account, instead of or beside a certificate
	pods    int    // number of pods made by fill
	meter   *meter // counts the calls of each and timed
}

func connect(kubeconfig string) (*clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, -1
	config.ContentType = protobufType
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	c := &clients{address: server.Host}
	if c.tls, err = rest.TLSConfigFor(config); err != nil {
		return nil, err
	}
	c.tls.NextProtos = []string{"http/1.1"}
	c.tls.ServerName = server.Hostname()
	c.set, err = kubernetes.NewForConfig(config)
	return c, err
}

// wire is a TLS connection that carries one HTTP/1.1 request at a time. It is about the cheapest
// possible client, so that on a shared machine the server is measured. Answers are read to their
// end and not decoded.
type wire struct {
	conn  net.Conn
	in    *bufio.Reader
	out   []byte
	token string
	extra string // header lines of the next requests
	// Headers of the last answer.
	later time.Duration // Retry-After
	last  bool          // Connection: close
}

func (c *clients) dial() (*wire, error) {
	conn, err := tls.Dial("tcp", c.address, c.tls)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), token: c.token}, nil
}

// send writes a request.
func (w *wire) send(method, path, contentType, accept string, body []byte) error {
	b := append(w.out[:0], method...)
	b = append(append(b, ' '), path...)
	b = append(b, " HTTP/1.1\r\nHost: compare\r\nUser-Agent: compare/1\r\nAccept: "...)
	b = append(append(b, accept...), "\r\n"...)
	if w.token != "" {
		b = append(append(append(b, "Authorization: Bearer "...), w.token...), "\r\n"...)
	}
	b = append(b, w.extra...)
	if body != nil {
		b = append(append(b, "Content-Type: "...), contentType...)
		b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(len(body)), 10)
		b = append(b, "\r\n"...)
	}
	w.out = append(append(b, "\r\n"...), body...)
	_, err := w.conn.Write(w.out)
	return err
}

// head reads an answer up to its body. length is -1 for a chunked body.
func (w *wire) head() (code int, length int64, err error) {
	line, err := w.in.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < 12 {
		return 0, 0, fmt.Errorf("not an HTTP answer: %q", line)
	}
	if code, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, err
	}
	w.later, w.last = 0, false
	for {
		if line, err = w.in.ReadSlice('\n'); err != nil {
			return 0, 0, err
		}
		name, value, ok := bytes.Cut(line, []byte(": "))
		switch {
		case !ok:
			return code, length, nil
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err != nil {
				return 0, 0, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = -1
		case bytes.EqualFold(name, []byte("Retry-After")):
			seconds, err := strconv.Atoi(string(bytes.TrimSpace(value)))
			if err != nil {
				return 0, 0, fmt.Errorf("header Retry-After: %w", err)
			}
			w.later = time.Duration(seconds) * time.Second
		case bytes.EqualFold(name, []byte("Connection")):
			w.last = bytes.EqualFold(bytes.TrimSpace(value), []byte("close"))
		}
	}
}

// do sends a request and reads its answer; an unsuccessful answer is an error.
func (w *wire) do(method, path, contentType, accept string, body []byte) (size int64, err error) {
	if err := w.send(method, path, contentType, accept, body); err != nil {
		return 0, err
	}
	code, length, err := w.head()
	if err != nil {
		return 0, err
	}
	var content io.Reader = io.LimitReader(w.in, length)
	if length < 0 {
		content = &chunks{in: w.in}
	}
	if code >= http.StatusMultipleChoices {
		return 0, refusal(method, path, code, content)
	}
	if length >= 0 {
		_, err := w.in.Discard(int(length))
		return length, err
	}
	return io.Copy(io.Discard, content)
}

// chunks reads a chunked body.
type chunks struct {
	in   *bufio.Reader
	left int64
	end  bool
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n, err := c.in.Read(p[:min(int64(len(p)), c.left)])
	if c.left -= int64(n); c.left == 0 && err == nil {
		_, err = c.in.Discard(2)
	}
	return n, err
}

func (c *chunks) next() error {
	if c.end {
		return io.EOF
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if c.left, err = strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 64); err != nil {
		return err
	}
	if c.left > 0 {
		return nil
	}
	c.end = true
	if _, err := c.in.Discard(2); err != nil {
		return err
	}
	return io.EOF
}

// each calls fn n times from inFlight goroutines, each with its own wire, and returns calls per
// second.
func (c *clients) each(ctx context.Context, n, inFlight int, fn func(w *wire, i int) error) (float64, error) {
	wires := make([]*wire, inFlight)
	for i := range wires {
		w, err := c.dial()
		if err != nil {
			return 0, err
		}
		defer w.conn.Close()
		wires[i] = w
	}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	began := time.Now()
	c.meter.begin(n)
	for _, w := range wires {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || failed.Load() != nil || ctx.Err() != nil {
					return
				}
				if err := fn(w, i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
				c.meter.add()
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(n) / time.Since(began).Seconds(), ctx.Err()
}
