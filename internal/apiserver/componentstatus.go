package apiserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Component is a part of the control plane besides the server and its store.
type Component struct {
	Name string
	// Health is the URL of its health check. Empty means that it runs in this process and so is
	// healthy.
	Health string
}

const (
	componentTimeout = 20 * time.Second // as upstream
	maxHealthBytes   = 10 << 10
)

// componentClient requests health checks on this machine. It accepts any certificate, because it
// sends no secrets.
var componentClient = &http.Client{Timeout: componentTimeout, Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
}}

// componentStatuses returns the statuses of the components and stores whose names are wanted. They
// are asked concurrently, as upstream, so that a slow one delays the answer only by its own time.
func (s *Server) componentStatuses(ctx context.Context, wanted func(name string) bool) (all []runtime.Object) {
	var asked sync.WaitGroup
	add := func(name string, ask func(context.Context) corev1.ComponentCondition) {
		if !wanted(name) {
			return
		}
		status := &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: name}}
		all = append(all, status)
		asked.Go(func() {
			c := ask(ctx)
			c.Type = corev1.ComponentHealthy
			status.Conditions = []corev1.ComponentCondition{c}
		})
	}
	for _, c := range s.cfg.Components {
		add(c.Name, c.condition)
	}
	for i, at := range s.shared.Places {
		add(fmt.Sprintf("etcd-%d", i), at.Condition)
	}
	asked.Wait()
	return all
}

func (c Component) condition(ctx context.Context) corev1.ComponentCondition {
	if c.Health == "" {
		return corev1.ComponentCondition{Status: corev1.ConditionTrue, Message: "ok"}
	}
	message, err := c.ask(ctx)
	if err != nil {
		return corev1.ComponentCondition{Status: corev1.ConditionFalse, Message: err.Error()}
	}
	return corev1.ComponentCondition{Status: corev1.ConditionTrue, Message: message}
}

func (c Component) ask(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Health, nil)
	if err != nil {
		return "", err
	}
	answer, err := componentClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxHealthBytes))
	if err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("HTTP probe failed with statuscode: %d", answer.StatusCode)
	}
	return string(body), nil
}
