package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed postgresql.yaml
var postgresqlManifest string

// instances of the Cluster "db", by their pods.
var instances = []string{"db-1", "db-2", "db-3"}

// clusterStatus is what the judge reads of the operator's Cluster.
type clusterStatus struct {
	Status struct {
		CurrentPrimary string `json:"currentPrimary"`
		ReadyInstances int    `json:"readyInstances"`
		Phase          string `json:"phase"`
	} `json:"status"`
}

// writerFigures and writerCheck are the answers of the writer.
type writerFigures struct {
	Acknowledged int     `json:"acknowledged"`
	Unknown      int     `json:"unknown"`
	Age          float64 `json:"age"`
	Longest      float64 `json:"longest"`
}

type writerCheck struct {
	Acknowledged int      `json:"acknowledged"`
	Rows         int      `json:"rows"`
	Missing      int      `json:"missing"`
	Examples     []string `json:"examples"`
}

// postgresql tells the story of the database.
func (c *cluster) postgresql(operator string) (figures []figure, err error) {
	note := func(what, value string, args ...any) {
		figures = append(figures, figure{what, fmt.Sprintf(value, args...)})
		progress("%s: %s", what, fmt.Sprintf(value, args...))
	}
	for _, step := range []func(func(string, string, ...any)) error{
		func(note func(string, string, ...any)) error { return c.install(operator, note) },
		c.switchOver, c.refuseEviction, c.powerFailure, c.expand, c.compare, c.discard,
	} {
		if err := step(note); err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// install installs the operator and the database, and begins to write.
func (c *cluster) install(operator string, note func(string, string, ...any)) error {
	progress("installing CloudNativePG")
	manifest, err := os.ReadFile(operator)
	if err != nil {
		return err
	}
	// No registry has the image that was built here.
	text := strings.Replace(string(manifest), "imagePullPolicy: Always", "imagePullPolicy: IfNotPresent", 1)
	if err := c.apply(text); err != nil {
		return err
	}
	// The operator must survive the node of the primary.
	if _, err := c.kubectl("patch", "deployment", "-n", "cnpg-system", "cnpg-controller-manager", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"field":"clients"}}}}}`); err != nil {
		return err
	}
	if _, err := c.kubectl("rollout", "status", "-n", "cnpg-system", "deployment/cnpg-controller-manager", "--timeout=180s"); err != nil {
		return err
	}
	progress("creating a database of three instances")
	began := time.Now()
	if _, err := c.kubectl("create", "namespace", "shop"); err != nil {
		return err
	}
	err = eventually(time.Minute, "the operator's webhooks", func() error { return c.apply(postgresqlManifest) })
	if err != nil {
		return err
	}
	if err := c.healthy(6 * time.Minute); err != nil {
		return err
	}
	note("three instances are ready after", "%s", seconds(time.Since(began).Seconds()))
	return c.writing(time.Minute)
}

// healthy waits until all instances are ready.
func (c *cluster) healthy(limit time.Duration) error {
	return eventually(limit, "all instances are ready", func() error {
		s, err := c.status()
		if err == nil && (s.Status.ReadyInstances != len(instances) || s.Status.Phase != "Cluster in healthy state") {
			err = fmt.Errorf("%d of %d are, in phase %q", s.Status.ReadyInstances, len(instances), s.Status.Phase)
		}
		return err
	})
}

func (c *cluster) status() (s clusterStatus, err error) {
	err = c.get(&s, "-n", "shop", "clusters.postgresql.cnpg.io", "db", "-o", "json")
	return s, err
}

// primary returns the instance that is the primary, once it is not the old one.
func (c *cluster) primary(limit time.Duration, old string) (primary string, err error) {
	err = eventually(limit, "a new primary", func() error {
		s, err := c.status()
		if primary = s.Status.CurrentPrimary; err == nil && (primary == old || primary == "") {
			err = fmt.Errorf("it is %q, in phase %q", primary, s.Status.Phase)
		}
		return err
	})
	return primary, err
}

// ask asks the writer.
func (c *cluster) ask(into any, path string) error {
	return c.get(into, "--raw", "/api/v1/namespaces/shop/pods/writer:8080/proxy/"+path)
}

// writing waits until transactions are acknowledged from now on.
func (c *cluster) writing(limit time.Duration) error {
	var before, now writerFigures
	if err := eventually(limit, "the writer", func() error { return c.ask(&before, "figures") }); err != nil {
		return err
	}
	return eventually(limit, "transactions", func() error {
		err := c.ask(&now, "figures")
		if err == nil && now.Acknowledged <= before.Acknowledged {
			err = fmt.Errorf("the last one was acknowledged %.0f s ago", now.Age)
		}
		return err
	})
}

// pause returns the longest time without an acknowledgement since it was asked last.
func (c *cluster) pause() (string, error) {
	var f writerFigures
	err := c.ask(&f, "figures?reset=1")
	return seconds(f.Longest), err
}

// switchOver makes another instance the primary, as the operator's kubectl plugin does.
func (c *cluster) switchOver(note func(string, string, ...any)) error {
	old, err := c.primary(time.Second, "")
	if err != nil {
		return err
	}
	next := instances[(slices.Index(instances, old)+1)%len(instances)]
	progress("switch-over from %s to %s", old, next)
	if _, err := c.pause(); err != nil {
		return err
	}
	began := time.Now()
	if err := c.promote(old, next); err != nil {
		return err
	}
	note("switch-over: a new primary after", "%s", seconds(time.Since(began).Seconds()))
	if err := c.healthy(3 * time.Minute); err != nil {
		return err
	}
	if err := c.writing(time.Minute); err != nil {
		return err
	}
	pause, err := c.pause()
	note("switch-over: longest time without an acknowledgement", "%s", pause)
	return err
}

// promote asks the operator for another primary and waits until it is.
func (c *cluster) promote(old, next string) error {
	target, err := json.Marshal(map[string]any{"status": map[string]any{
		"targetPrimary": next, "targetPrimaryTimestamp": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
		"phase": "Switchover in progress", "phaseReason": "the judge asks for it",
	}})
	if err != nil {
		return err
	}
	if _, err := c.kubectl("patch", "-n", "shop", "clusters.postgresql.cnpg.io", "db", "--subresource=status", "--type=merge", "-p", string(target)); err != nil {
		return err
	}
	primary, err := c.primary(3*time.Minute, old)
	if err != nil {
		return err
	}
	if primary != next {
		return fmt.Errorf("the new primary is %s, wanted %s", primary, next)
	}
	return nil
}

// refuseEviction tries to evict the primary, which the operator's PodDisruptionBudget forbids.
func (c *cluster) refuseEviction(note func(string, string, ...any)) error {
	primary, err := c.primary(time.Second, "")
	if err != nil {
		return err
	}
	eviction := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":"shop"}}`, primary)
	_, err = c.kubectlWith(eviction, "create", "--raw", "/api/v1/namespaces/shop/pods/"+primary+"/eviction", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "disruption budget") {
		return errors.Join(fmt.Errorf("the eviction of the primary %s was not refused by its budget", primary), err)
	}
	note("the primary's budget refuses its eviction", "yes")
	return nil
}

// powerFailure cuts the power of the primary's node, and gives it back when another instance is the
// primary.
func (c *cluster) powerFailure(note func(string, string, ...any)) error {
	old, err := c.primary(time.Second, "")
	if err != nil {
		return err
	}
	node, err := c.field(".spec.nodeName", "-n", "shop", "pod", old)
	if err != nil {
		return err
	}
	m, err := c.machine(node)
	if err != nil {
		return err
	}
	progress("cutting the power of %s, the node of %s", node, old)
	if _, err := c.pause(); err != nil {
		return err
	}
	began := time.Now()
	if err := m.cut(); err != nil {
		return err
	}
	// The operator may notice before the cluster does.
	var silent, promoted time.Duration
	var silentErr, promotedErr error
	var both sync.WaitGroup
	both.Go(func() {
		silentErr = c.want(3*time.Minute, "Unknown", `.status.conditions[?(@.type=="Ready")].status`, "node", node)
		silent = time.Since(began)
	})
	both.Go(func() {
		_, promotedErr = c.primary(4*time.Minute, old)
		promoted = time.Since(began)
	})
	both.Wait()
	if err := errors.Join(silentErr, promotedErr); err != nil {
		return err
	}
	note("power failure: the node is known to be silent after", "%s", seconds(silent.Seconds()))
	note("power failure: a new primary after", "%s", seconds(promoted.Seconds()))
	if err := c.writing(2 * time.Minute); err != nil {
		return err
	}
	pause, err := c.pause()
	if err != nil {
		return err
	}
	note("power failure: longest time without an acknowledgement", "%s", pause)
	progress("power for %s", node)
	began = time.Now()
	if err := m.boot(); err != nil {
		return err
	}
	if err := c.join(m); err != nil {
		return err
	}
	if err := c.want(2*time.Minute, "True", `.status.conditions[?(@.type=="Ready")].status`, "node", node); err != nil {
		return err
	}
	note("power again: the node is ready after", "%s", seconds(time.Since(began).Seconds()))
	if err := c.healthy(6 * time.Minute); err != nil {
		return err
	}
	note("power again: the old primary is a replica after", "%s", seconds(time.Since(began).Seconds()))
	return nil
}

// compare looks for all acknowledged transactions in every instance.
func (c *cluster) compare(note func(string, string, ...any)) error {
	var total, unknown int
	for _, pod := range instances {
		address, err := c.field(".status.podIP", "-n", "shop", "pod", pod)
		if err != nil {
			return err
		}
		// A replica may be a moment behind.
		err = eventually(time.Minute, "the rows of "+pod, func() error {
			var check writerCheck
			if err := c.ask(&check, "check?host="+address); err != nil {
				return err
			}
			total = check.Acknowledged
			if check.Missing > 0 {
				return fmt.Errorf("%d of %d acknowledged transactions are missing: %v", check.Missing, check.Acknowledged, check.Examples)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	var f writerFigures
	if err := c.ask(&f, "figures"); err != nil {
		return err
	}
	unknown = f.Unknown
	note("acknowledged transactions, each of them in all three instances", "%d", total)
	note("transactions with an unknown outcome", "%d", unknown)
	return nil
}

// discard deletes the database with its data.
func (c *cluster) discard(note func(string, string, ...any)) error {
	progress("deleting the database")
	if _, err := c.kubectl("delete", "-n", "shop", "pod/writer", "clusters.postgresql.cnpg.io/db", "--timeout=120s"); err != nil {
		return err
	}
	began := time.Now()
	err := eventually(3*time.Minute, "all volumes are gone", func() error {
		names, err := c.kubectl("get", "pv", "-o", "name")
		if err == nil && names != "" {
			err = fmt.Errorf("there are %s", strings.Join(strings.Fields(names), ", "))
		}
		return err
	})
	if err != nil {
		return err
	}
	note("the database is deleted: its volumes are gone after", "%s", seconds(time.Since(began).Seconds()))
	return nil
}
