package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/knarr-project/knarr/internal/apiserver"
	"github.com/knarr-project/knarr/internal/apiserver/transport"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// The benchmarks compare what the API server needs with each transport. The clients run in a
// process of their own. Each benchmark is a load of a fixed size, so run it once:
//
//	go test -run=NONE -bench=. -benchtime=1x ./internal/apiserver/transport

// The loads.
const (
	idleWatches = 5000
	updates     = 100 // delivered to each watch
	listers     = 8
	listObjects = 4000
	objectBytes = 10 << 10
	writes      = 200 // while the lists are sent
	newClients  = 3000
)

const maps = "/api/v1/namespaces/default/configmaps"

type allowAll struct{}

// Authorize implements auth.Authorizer.
func (allowAll) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	return auth.Allow, "", nil
}

func onEachTransport(b *testing.B, measure func(b *testing.B, address string)) {
	for _, kind := range []transport.Kind{transport.Fast, transport.Plain} {
		b.Run(string(kind), func(b *testing.B) { measure(b, startServer(b, kind)) })
	}
}

// startServer serves the API with TLS.
func startServer(b *testing.B, kind transport.Kind) (address string) {
	b.Helper()
	log := slog.New(slog.NewTextHandler(b.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	st, err := etcd.Open(b.Context(), etcd.Options{DataDir: filepath.Join(b.TempDir(), "etcd"), UnsafeNoSync: true, Log: log})
	if err != nil {
		b.Fatal(err)
	}
	server, err := apiserver.New(apiserver.Config{
		Store: st, Logger: log, Transport: kind, MaxRequests: -1,
		Security: apiserver.Security{Authorizer: allowAll{}},
	})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	certificates := httptest.NewTLSServer(nil)
	certificates.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- server.Run(ctx, listener, &tls.Config{Certificates: certificates.TLS.Certificates})
	}()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		_ = st.Close()
	})
	if err := server.Started(b.Context()); err != nil {
		b.Fatal(err)
	}
	return listener.Addr().String()
}

// usage is what this process, the server, has used.
type usage struct {
	memory int64 // heap and stacks in use
	cpu    time.Duration
}

func used() usage {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{int64(m.HeapAlloc + m.StackInuse), cpuTime()}
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkWatches opens watches, which are idle at first, and then delivers events to all of them.
func BenchmarkWatches(b *testing.B) {
	for _, proto := range []string{"http/1.1", "h2"} {
		b.Run(proto, func(b *testing.B) {
			onEachTransport(b, func(b *testing.B, address string) {
				post(b, client("h2"), address, "warm", 1)
				time.Sleep(time.Second)
				before := used()
				child := startClients(b, "watch", proto, address)
				child.until(b, "open")
				time.Sleep(2 * time.Second)
				idle := used()
				b.ReportMetric(float64(idle.memory-before.memory)/idleWatches, "B/idle-watch")
				by, began := client("h2"), time.Now()
				for i := range updates {
					post(b, by, address, fmt.Sprint("event-", i), 1)
				}
				child.until(b, "delivered")
				const deliveries = updates * idleWatches
				b.ReportMetric(float64((cpuTime()-idle.cpu).Nanoseconds())/deliveries, "cpu-ns/event")
				b.ReportMetric(deliveries/time.Since(began).Seconds(), "events/s")
			})
		})
	}
}

// BenchmarkWritesBesideLargeLists measures how long writes take while lists of 40 MB are sent.
func BenchmarkWritesBesideLargeLists(b *testing.B) {
	onEachTransport(b, func(b *testing.B, address string) {
		by := client("h2")
		for i := range listObjects {
			post(b, by, address, fmt.Sprint("large-", i), objectBytes)
		}
		child := startClients(b, "list", "h2", address)
		child.until(b, "listed")
		before, start := child.count(b), time.Now()
		var took []time.Duration
		for i := range writes {
			began := time.Now()
			post(b, by, address, fmt.Sprint("beside-", i), 1)
			took = append(took, time.Since(began))
			time.Sleep(10 * time.Millisecond)
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[writes/2].Microseconds())/1000, "ms/p50-write")
		b.ReportMetric(float64(took[writes*99/100].Microseconds())/1000, "ms/p99-write")
		b.ReportMetric(float64(child.count(b)-before)/time.Since(start).Seconds(), "lists/s")
	})
}

// BenchmarkClientsAtOnce lets many clients connect at the same moment, as after a restart.
func BenchmarkClientsAtOnce(b *testing.B) {
	onEachTransport(b, func(b *testing.B, address string) {
		before := used()
		var most atomic.Int64
		stop := make(chan struct{})
		go func() {
			var m runtime.MemStats
			for {
				runtime.ReadMemStats(&m)
				most.Store(max(most.Load(), int64(m.HeapAlloc+m.StackInuse)))
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		}()
		began := time.Now()
		startClients(b, "connect", "http/1.1", address).until(b, "connected")
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/all")
		close(stop)
		b.ReportMetric(float64(used().memory-before.memory)/(1<<20), "MB/after")
		b.ReportMetric(float64(most.Load()-before.memory)/(1<<20), "MB/peak")
		b.ReportMetric(float64((cpuTime()-before.cpu).Microseconds())/newClients, "cpu-us/client")
	})
}

func client(proto string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: proto == "h2", TLSClientConfig: trust(proto),
	}}
}

func trust(proto string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}}
}

// post creates a ConfigMap with so many bytes.
func post(b *testing.B, by *http.Client, address, name string, size int) {
	b.Helper()
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":%q}}`,
		name, strings.Repeat("x", size))
	resp, err := by.Post("https://"+address+maps, "application/json", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		b.Fatal(resp.Status)
	}
}

// clients is the clients' process.
type clients struct {
	said *bufio.Scanner
	ask  io.Writer
}

func startClients(b *testing.B, load, proto, address string) *clients {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestClients$")
	cmd.Env = append(os.Environ(), "KNARR_BENCH_CLIENTS="+strings.Join([]string{load, proto, address}, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	ask, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &clients{bufio.NewScanner(out), ask}
}

// until waits until the clients say it.
func (c *clients) until(b *testing.B, want string) {
	b.Helper()
	for c.said.Scan() {
		if c.said.Text() == want {
			return
		}
	}
	b.Fatalf("the clients ended before they said %q", want)
}

// count asks how many lists the clients have read.
func (c *clients) count(b *testing.B) (n int) {
	b.Helper()
	fmt.Fprintln(c.ask)
	for c.said.Scan() {
		if _, err := fmt.Sscanf(c.said.Text(), "%d lists", &n); err == nil {
			return n
		}
	}
	b.Fatal("the clients ended before they said how many lists they have read")
	return 0
}

// TestClients is the clients of a benchmark, in the process that startClients starts.
func TestClients(t *testing.T) {
	load := strings.Fields(os.Getenv("KNARR_BENCH_CLIENTS"))
	if len(load) == 0 {
		t.Skip("only the benchmarks run it")
	}
	proto, address := load[1], load[2]
	switch load[0] {
	case "watch":
		watch(t, proto, address)
	case "list":
		list(t, address)
	case "connect":
		connect(t, proto, address)
	}
}

// events counts what comes over watches: each event ends with a line feed, and so do, behind a
// carriage return, the lines around an HTTP/1.1 chunk.
type events struct{ n atomic.Int64 }

func (e *events) read(from io.Reader) {
	var before byte
	for buffer := make([]byte, 4096); ; {
		n, err := from.Read(buffer)
		for _, c := range buffer[:n] {
			if c == '\n' && before != '\r' {
				e.n.Add(1)
			}
			before = c
		}
		if err != nil {
			return
		}
	}
}

const watchPath = maps + "?watch=1&timeoutSeconds=3600&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"

func watch(t *testing.T, proto, address string) {
	var got events
	if proto == "h2" {
		watchTwo(t, address, &got)
	} else {
		watchOne(t, address, &got)
	}
	fmt.Println("open")
	for got.n.Load() < updates*idleWatches {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("delivered")
	time.Sleep(time.Hour)
}

// watchOne opens watches over HTTP/1.1, each on a connection of its own.
func watchOne(t *testing.T, address string, got *events) {
	for range idleWatches {
		conn, err := tls.Dial("tcp", address, trust("http/1.1"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", watchPath)
		in := bufio.NewReader(conn)
		for line := "?"; line != "\r\n"; {
			if line, err = in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		rest, _ := in.Peek(in.Buffered())
		go got.read(io.MultiReader(bytes.NewReader(slices.Clone(rest)), conn))
	}
}

// watchTwo opens watches over HTTP/2, two hundred on each connection.
func watchTwo(t *testing.T, address string, got *events) {
	const each = 200
	for range idleWatches / each {
		conn, err := tls.Dial("tcp", address, trust("h2"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, http2.ClientPreface)
		fr := http2.NewFramer(conn, conn)
		_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		_ = fr.WriteWindowUpdate(0, 1<<30)
		var block bytes.Buffer
		fields := hpack.NewEncoder(&block)
		open := make(chan struct{}, each)
		go func() {
			for {
				f, err := fr.ReadFrame()
				if err != nil {
					return
				}
				switch f := f.(type) {
				case *http2.HeadersFrame:
					open <- struct{}{}
				case *http2.DataFrame:
					got.n.Add(int64(bytes.Count(f.Data(), []byte("\n"))))
				}
			}
		}()
		for i := range each {
			block.Reset()
			for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", watchPath}} {
				_ = fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
			}
			_ = fr.WriteHeaders(http2.HeadersFrameParam{
				StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
			})
			<-open
		}
	}
}

// list lists everything again and again.
func list(t *testing.T, address string) {
	var n atomic.Int64
	var all sync.WaitGroup
	for range listers {
		by := client("h2")
		all.Go(func() {
			for {
				resp, err := by.Get("https://" + address + maps)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if n.Add(1) == 1 {
					fmt.Println("listed")
				}
			}
		})
	}
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		fmt.Println(n.Load(), "lists")
	}
	all.Wait()
}

// connect lets all clients connect at once.
func connect(t *testing.T, proto, address string) {
	var all sync.WaitGroup
	var mu sync.Mutex
	conns := make([]net.Conn, 0, newClients) // else the garbage collector closes them
	for range newClients {
		all.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			if err := tls.Client(conn, trust(proto)).HandshakeContext(context.Background()); err != nil {
				t.Error(err)
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
		})
	}
	all.Wait()
	fmt.Println("connected")
	time.Sleep(time.Hour)
	runtime.KeepAlive(conns)
}
