package ui

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp/kb"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// machine is a network namespace with a knarr that has a node.
type machine struct {
	t      *testing.T
	dir    string
	cgroup string
	keeper *exec.Cmd
	pid    int // of a process inside
}

// startMachine starts bin/knarr in a network namespace. It returns the configuration of an
// administrator, whose server is a local port that leads into the namespace.
func startMachine(t *testing.T) (*machine, *rest.Config) {
	t.Helper()
	binary, err := filepath.Abs("../../bin/knarr")
	if _, missing := os.Stat(binary); err != nil || missing != nil || os.Geteuid() != 0 {
		t.Skip("needs root and make build")
	}
	top, err := os.MkdirTemp("", "knarr-ui-")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: filepath.Join(top, "data"), cgroup: fmt.Sprintf("/knarr-ui-%d", os.Getpid())}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	m.keeper = exec.Command("unshare", "--fork", "--kill-child", "--net", "sleep", "infinity")
	if err := m.keeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.keeper.Process.Kill()
		_ = m.keeper.Wait()
	})
	m.wait("the namespace", func() bool {
		child, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", m.keeper.Process.Pid))
		m.pid, err = strconv.Atoi(strings.TrimSpace(string(child)))
		return err == nil
	})
	for _, args := range []string{"link set lo up", "link add uplink type veth peer name switch", "addr add 192.168.88.1/24 dev uplink", "link set uplink up", "link set switch up"} {
		m.run("ip", strings.Fields(args)...)
	}
	knarr := m.command(binary, "up", "--data-dir", m.dir, "--node-name", "one", "--cgroup-root", m.cgroup, "--eviction-hard", "memory.available<100Mi", "--image-gc-high-threshold", "100")
	log, err := os.Create(filepath.Join(top, "log"))
	if err != nil {
		t.Fatal(err)
	}
	knarr.Stdout, knarr.Stderr = log, log
	if err := knarr.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = knarr.Process.Signal(syscall.SIGTERM)
		_ = knarr.Wait()
		m.run(binary, "purge", "--yes", "--data-dir", m.dir, "--cgroup-root", m.cgroup)
		_ = log.Close()
	})
	text := func() string { data, _ := os.ReadFile(log.Name()); return string(data) }
	m.wait("knarr", func() bool { return strings.Contains(text(), "ready in") })
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(m.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.Host = "https://" + m.forward(strings.TrimPrefix(config.Host, "https://"))
	config.TLSClientConfig.ServerName = "localhost"

	program := filepath.Join(top, "deckhand")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./deckhand")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.run(binary, "image", "build", "--data-dir", m.dir, "--tag", "deckhand:v1", program)
	return m, config
}

func (m *machine) command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--target", strconv.Itoa(m.pid), "--net", "--", name}, args...)...)
}

func (m *machine) run(name string, args ...string) {
	m.t.Helper()
	if out, err := m.command(name, args...).CombinedOutput(); err != nil {
		m.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func (m *machine) wait(what string, fn func() bool) {
	m.t.Helper()
	for end := time.Now().Add(patience); !fn(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%s does not come", what)
		}
	}
}

// forward returns a local address whose connections lead to the address in the namespace.
func (m *machine) forward(to string) string {
	m.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // closed
			}
			far, err := m.dial(to)
			if err != nil {
				_ = near.Close()
				continue
			}
			both := func(a, b net.Conn) {
				_, _ = io.Copy(a, b) // an end closes both
				_ = a.Close()
				_ = b.Close()
			}
			go both(near, far)
			go both(far, near)
		}
	}()
	return listener.Addr().String()
}

// dial connects from inside the namespace. Its thread ends, since it cannot be used elsewhere.
func (m *machine) dial(to string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", m.pid))
		if err == nil {
			err = errors.Join(unix.Setns(int(space.Fd()), unix.CLONE_NEWNET), space.Close())
		}
		if err != nil {
			done <- result{nil, err}
			return
		}
		conn, err := net.DialTimeout("tcp", to, patience)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

func deckhand(name, command string) *corev1.Pod {
	second := int64(1)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &second, Containers: []corev1.Container{
		{Name: "main", Image: "deckhand:v1", ImagePullPolicy: corev1.PullNever, Args: []string{command}},
	}}}
}

func TestLogsShellAndEventsOfRealContainers(t *testing.T) {
	m, config := startMachine(t)
	k := clientset(t, config)
	m.wait("the service account", func() bool {
		_, err := k.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	b := openBrowser(t)
	b.logIn(config)
	b.visit("#/list/core/pods")
	for _, pod := range []*corev1.Pod{deckhand("count", "count"), deckhand("fall", "fall")} {
		if _, err := k.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.until("the running pod", rowOf("count")+"?.textContent.includes('Running')")

	// Events come while one watches.
	b.visit("#/object/core/pods/default/count/events")
	b.until("the start", `[...document.querySelectorAll('.grid-space .grid-row')].some((r) => r.textContent.includes('Started'))`)
	// The log goes on.
	b.visit("#/object/core/pods/default/count/logs")
	b.until("lines", `/^line 1\n/.test(document.querySelector('.log')?.textContent)`)
	number := func() int {
		return eval[int](b, `Number(document.querySelector('.log').textContent.trim().split(' ').at(-1))`)
	}
	before := number()
	b.until("further lines", fmt.Sprintf(`Number(document.querySelector('.log').textContent.trim().split(' ').at(-1)) > %d`, before+5))
	b.picture("page-logs")

	// A shell whose terminal follows the window.
	b.visit("#/object/core/pods/default/count/shell")
	b.until("the command", `document.querySelector('#panel input') && document.querySelector('#panel select option')`)
	eval[any](b, `document.querySelector('#panel input').value = '/deckhand shell'`)
	eval[any](b, `document.querySelector('#panel button.main').click()`)
	b.until("the size", `/terminal [1-9]\d+x[1-9]\d*/.test(document.querySelector('.terminal').textContent)`)
	b.until("the focus", `document.activeElement.classList.contains('terminal')`)
	b.press("land ho")
	b.press(kb.Enter)
	b.until("the answer", `document.querySelector('.terminal').textContent.includes('aye, land ho')`)
	columns := func() int {
		return eval[int](b, `Number(document.querySelector('.terminal').textContent.match(/terminal (\d+)x/g).at(-1).match(/\d+/)[0])`)
	}
	wide := columns()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 900, Height: 600, DeviceScaleFactor: 1})
	b.until("another size", fmt.Sprintf(`Number(document.querySelector('.terminal').textContent.match(/terminal (\d+)x/g).at(-1).match(/\d+/)[0]) < %d`, wide))
	eval[any](b, `[...document.querySelectorAll('#panel button')].find((x) => x.textContent === 'Close').click()`)
	b.shows("the connection is closed")
	call(b, emulation.ClearDeviceMetricsOverride, cdp.Empty{})

	// Why the other pod falls, with the end of its log.
	b.visit("#/object/core/pods/default/fall/why")
	b.until("the exit code and the log", `document.querySelector('.cause')?.textContent.includes('3') && document.querySelector('.evidence')?.textContent.includes('the mast is broken') || (document.querySelector('.headline') && [...document.querySelectorAll('button')].find((x) => x.textContent === 'Ask again').click())`)
	b.picture("page-why")
	b.checkQuiet(strings.TrimPrefix(config.Host, "https://"))
}
