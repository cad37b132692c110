package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// as returns clients with an administrator's rights, but with a service account's priority in flow
// control: system:masters never waits.
func (c *clients) as(ctx context.Context, account string) (*clients, error) {
	accounts := c.set.CoreV1().ServiceAccounts(space)
	made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}
	if _, err := accounts.Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "compare-" + account}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: space, Name: account}},
	}
	if _, err := c.set.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	token, err := accounts.CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	plain := c.tls.Clone()
	plain.Certificates, plain.GetClientCertificate = nil, nil
	other := &clients{set: c.set, address: c.address, tls: plain, token: token.Status.Token, meter: c.meter}
	return other, until(ctx, 10*time.Second, "rights of "+account, func() bool {
		w, err := other.dial()
		if err != nil {
			return false
		}
		defer w.conn.Close()
		_, err = w.do("GET", configMaps+"?limit=1", "", protobufType, nil)
		return err == nil
	})
}

// idleWatches measures the cost of an idle watch: 10,000 of them, first with a connection each,
// then a hundred per HTTP/2 connection. The server restarts in between; otherwise the second kind
// would reuse the memory of the first.
func idleWatches(ctx context.Context, o *options, c *clients, f figures, cluster *cluster) error {
	watches := int(10000 * o.scale)
	for _, kind := range []struct {
		key  string
		open func(ctx context.Context, path string, n int) ([]stream, error)
	}{{"idle-watch", c.plainStreams}, {"idle-watch-h2", c.sharedStreams}} {
		if err := cluster.restartServer(ctx); err != nil {
			return err
		}
		before, all := settled(ctx, cluster.control)
		bodies, err := kind.open(ctx, configMaps+"?watch=1&fieldSelector=metadata.name=one", watches)
		if err != nil {
			return err
		}
		with, allWith := settled(ctx, cluster.control)
		each := func(megabytes float64) float64 { return megabytes * 1e6 / 1024 / float64(watches) }
		f[kind.key] = figure{value: each(with - before), note: fmt.Sprintf("%d watches, RssAnon %.0f and %.0f MB, RSS %.1f KiB", watches, before, with, each(allWith-all))}
		if o.profile {
			if err := o.keepHeap(ctx, c, kind.key, cluster.control); err != nil {
				return err
			}
		}
		for _, body := range bodies {
			body.Close()
		}
	}
	return nil
}

// settled returns the processes' memory (RssAnon, RSS) after some time to tidy up.
func settled(ctx context.Context, server []*process) (anon, rss float64) {
	_ = pause(ctx, 30*time.Second)
	return memory(tree(server))
}

// watch opens a watch on its own connection.
func (c *clients) watch(path string) (*wire, error) {
	w, err := c.dial()
	if err != nil {
		return nil, err
	}
	err = w.send("GET", path, "", protobufType+";stream=watch", nil)
	if err == nil {
		var code int
		if code, _, err = w.head(); err == nil && code != http.StatusOK {
			err = fmt.Errorf("watch: %d", code)
		}
	}
	if err != nil {
		w.conn.Close()
		return nil, err
	}
	return w, nil
}

// parallel calls fn for 0..n-1 from inFlight goroutines and returns the first error.
func parallel(n, inFlight int, fn func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range inFlight {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := fn(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// stormRounds is the number of measurements of writes with and without lists: the load of a shared
// disk and machine changes within a minute.
const stormRounds = 4

// storm measures the duration of writes while fifty clients list 100,000 pods over and over, and
// without these lists.
func storm(ctx context.Context, c *clients, scale float64, f figures, cluster *cluster) error {
	pods := int(100000 * scale)
	if err := c.fill(ctx, pods); err != nil {
		return err
	}
	crowd, err := c.as(ctx, "crowd")
	if err != nil {
		return err
	}
	order := readersOrder{Kubeconfig: cluster.kubeconfig, Token: crowd.token, Path: podsPath, Readers: 50}
	var quiet, busy timing
	var read readersResult
	var spent time.Duration
	for range stormRounds {
		_ = pause(ctx, 3*time.Second)
		if err := quiet.writes(ctx, c, pods); err != nil {
			return err
		}
		before := processor(tree(cluster.control))
		stop, err := startReaders(order)
		if err != nil {
			return err
		}
		_ = pause(ctx, 3*time.Second)
		err = busy.writes(ctx, c, pods)
		result, failed := stop()
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		spent += processor(tree(cluster.control)) - before
		read.Lists += result.Lists
		read.Refused += result.Refused
	}
	if read.Lists == 0 {
		return fmt.Errorf("no list was answered, %d refused", read.Refused)
	}
	f["storm"] = figure{value: busy.at(99).Seconds() / quiet.at(99).Seconds(), note: fmt.Sprintf("p99 %s, %s without; median %s, %s; %d lists, %d refused, %.1f s of the server's CPU",
		short(busy.at(99)), short(quiet.at(99)), short(busy.at(50)), short(quiet.at(50)), read.Lists, read.Refused, spent.Seconds())}
	return nil
}

func short(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// fill creates pods until there are n.
func (c *clients) fill(ctx context.Context, n int) error {
	have := c.pods
	if n <= have {
		return nil
	}
	c.pods = n
	if _, err := c.each(ctx, n-have, 64, func(w *wire, i int) error { return w.create(podsPath, unscheduledPod(have+i), "Pod") }); err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	return nil
}

// list reads a list once, on its own connection.
func (c *clients) list(ctx context.Context, path string) error {
	w, err := c.dial()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { w.conn.Close() })
	defer stop()
	defer w.conn.Close()
	_, err = w.do("GET", path, "", protobufType, nil)
	return err
}

// writes adds the durations of 1,000 patches of different pods, a hundred per second.
func (t *timing) writes(ctx context.Context, c *clients, pods int) error {
	some := timed(ctx, c, 1000, 10*time.Millisecond, func(w *wire, i int) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"patched":"%d"}}}`, time.Now().UnixNano())
		_, err := w.do("PATCH", fmt.Sprintf("%s/p-%06d", podsPath, i*7919%pods), mergePatch, protobufType, []byte(patch))
		return err
	})
	t.times = append(t.times, some.times...)
	slices.Sort(t.times)
	return errors.Join(some.err, ctx.Err())
}

// restartServer stops the API server and starts it again.
func (c *cluster) restartServer(ctx context.Context) error {
	for _, p := range c.control {
		if p.name == "knarr" || p.name == "kube-apiserver" {
			if err := p.restart(); err != nil {
				return err
			}
		}
	}
	return waitReady(ctx, c.kubeconfig, c.control...)
}

// relist measures the peak memory when, after a restart, 1,000 clients list 5,000 pods at once,
// beyond what the server needs in the end.
func relist(ctx context.Context, c *clients, scale float64, f figures, cluster *cluster) error {
	if err := c.fill(ctx, 5000); err != nil {
		return err
	}
	crowd, err := c.as(ctx, "relisting")
	if err != nil {
		return err
	}
	if err := cluster.restartServer(ctx); err != nil {
		return err
	}
	n := int(1000 * scale)
	var highest float64
	sampling, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for sampling.Err() == nil {
			_, rss := memory(tree(cluster.control))
			highest = max(highest, rss)
			_ = pause(sampling, 20*time.Millisecond)
		}
	})
	var again atomic.Int64
	began := time.Now()
	err = parallel(n, n, func(int) error {
		for {
			err := crowd.list(ctx, podsPath)
			if err == nil || ctx.Err() != nil || time.Since(began) > 5*time.Minute {
				return err
			}
			again.Add(1)
			_ = pause(ctx, time.Second)
		}
	})
	took := time.Since(began)
	stop()
	wg.Wait()
	if err != nil {
		return err
	}
	_, rss := settled(ctx, cluster.control)
	f["relist"] = figure{value: highest / rss, note: fmt.Sprintf("%.0f MB, %.0f MB afterwards; all served after %.1f s, %d tries refused", highest, rss, took.Seconds(), again.Load())}
	return nil
}
