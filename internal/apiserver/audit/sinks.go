package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/knarr-project/knarr/internal/egress"
)

// File configures the audit log on disk.
type File struct {
	Path string // "-" is standard output
	// MaxAge in days, MaxBackups, and MaxSize in megabytes limit rotated files; 0 is no limit.
	MaxAge, MaxBackups, MaxSize int
	Compress                    bool
	Format                      string // "json" or "legacy"
}

// file writes one line per event.
type file struct {
	mu     sync.Mutex
	out    io.Writer
	legacy bool
}

// OpenFile returns the Sink of a file.
func OpenFile(f File) (Sink, error) {
	if f.Path == "-" {
		return &file{out: os.Stdout, legacy: f.Format == "legacy"}, nil
	}
	// Report a path that cannot be written now, not at the first event.
	probe, err := os.OpenFile(f.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if err := probe.Close(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if f.MaxSize == 0 {
		f.MaxSize = 1 << 40 // for the library, 0 means 100
	}
	return &file{legacy: f.Format == "legacy", out: &lumberjack.Logger{
		Filename: f.Path, MaxAge: f.MaxAge, MaxBackups: f.MaxBackups, MaxSize: f.MaxSize, Compress: f.Compress,
	}}, nil
}

func (f *file) Put(event *auditv1.Event) error {
	var line []byte
	var err error
	if f.legacy {
		line = []byte(legacyLine(event))
	} else if line, err = json.Marshal(event); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err = f.out.Write(append(line, '\n'))
	return err
}

func (f *file) Close() error {
	if c, ok := f.out.(*lumberjack.Logger); ok {
		return c.Close()
	}
	return nil
}

// legacyLine returns upstream's human-readable format.
func legacyLine(e *auditv1.Event) string {
	ip, user, groups, as, asGroups, namespace, response := "<unknown>", "<none>", "<none>", "<self>", "<lookup>", "<none>", "<deferred>"
	if len(e.SourceIPs) > 0 {
		ip = e.SourceIPs[0]
	}
	if e.User.Username != "" {
		user = e.User.Username
	}
	if len(e.User.Groups) > 0 {
		groups = quoteAll(e.User.Groups)
	}
	if e.ImpersonatedUser != nil {
		as = e.ImpersonatedUser.Username
		if len(e.ImpersonatedUser.Groups) > 0 {
			asGroups = quoteAll(e.ImpersonatedUser.Groups)
		}
	}
	if e.ObjectRef != nil && e.ObjectRef.Namespace != "" {
		namespace = e.ObjectRef.Namespace
	}
	if e.ResponseStatus != nil {
		response = fmt.Sprint(e.ResponseStatus.Code)
	}
	return fmt.Sprintf("%s AUDIT: id=%q stage=%q ip=%q method=%q user=%q groups=%q as=%q asgroups=%q user-agent=%q namespace=%q uri=%q response=%q",
		e.RequestReceivedTimestamp.Format(time.RFC3339Nano), e.AuditID, e.Stage, ip, e.Verb, user, groups, as, asGroups, e.UserAgent, namespace, e.RequestURI, response)
}

func quoteAll(list []string) string {
	var out bytes.Buffer
	for i, s := range list {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, "%q", s)
	}
	return out.String()
}

// webhook posts lists of events.
type webhook struct {
	url     string
	http    *http.Client
	backoff time.Duration
}

const (
	// webhookAttempts is how often a batch is sent if it fails for any reason.
	webhookAttempts = 5
	// webhookTimeout limits one attempt; it is also sent to the webhook.
	webhookTimeout = 30 * time.Second
)

// OpenWebhook returns the Sink that posts to the server of a kubeconfig file. dial connects to it;
// nil dials directly. Without batching, each event is sent synchronously.
func OpenWebhook(kubeconfig string, dial egress.Dial, backoff time.Duration, batch *Batching, lost Lost) (Sink, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("audit webhook %s: %w", kubeconfig, err)
	}
	config.Timeout, config.Dial = webhookTimeout, dial
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("audit webhook %s: %w", kubeconfig, err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("audit webhook %s: %w", kubeconfig, err)
	}
	told := target.Query()
	told.Set("timeout", webhookTimeout.String())
	target.RawQuery = told.Encode()
	w := &webhook{url: target.String(), http: c, backoff: backoff}
	if batch == nil {
		return w, nil
	}
	return newBatches(*batch, lost, w.post), nil
}

// Put implements Sink for the blocking modes.
func (w *webhook) Put(event *auditv1.Event) error {
	return w.post(context.Background(), []*auditv1.Event{event})
}

func (w *webhook) Close() error { return nil }

func (w *webhook) post(ctx context.Context, events []*auditv1.Event) error {
	list := auditv1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: auditv1.SchemeGroupVersion.String()}}
	for _, e := range events {
		list.Items = append(list.Items, *e)
	}
	body, err := json.Marshal(list)
	if err != nil {
		return err
	}
	wait := w.backoff
	for attempt := 1; ; attempt++ {
		err := w.send(ctx, body)
		if err == nil || attempt == webhookAttempts {
			return err
		}
		select {
		case <-time.After(wait):
			wait = wait * 3 / 2
		case <-ctx.Done():
			return err
		}
	}
}

func (w *webhook) send(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, */*")
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // so that the connection is reused
	_ = resp.Body.Close()
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	return fmt.Errorf("the audit webhook answers %s", resp.Status)
}
