package main

import (
	_ "embed"
	"fmt"
	"strings"
	"time"
)

//go:embed mariadb.yaml
var mariadbManifest string

const kept = "1 2 3" // what each database has

// mariadb tells the story of databases in a StatefulSet.
func (c *cluster) mariadb() (figures []figure, err error) {
	note := func(what, value string) {
		figures = append(figures, figure{what, value})
		progress("%s: %s", what, value)
	}
	for _, step := range []func(func(string, string)) error{c.createSet, c.killDatabase, c.rollSet, c.scaleSet, c.deleteSet} {
		if err := step(note); err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// sql runs statements in a database and returns their values in one line.
func (c *cluster) sql(pod, statements string) (string, error) {
	out, err := c.kubectl("exec", "-n", "shop", pod, "-c", "mariadb", "--", "mariadb", "--socket=/tmp/mariadb.sock", "-N", "-e", statements)
	return strings.Join(strings.Fields(out), " "), err
}

// rows compares the rows of a database.
func (c *cluster) rows(pod, wanted string) error {
	have, err := c.sql(pod, "SELECT number FROM shop.entries ORDER BY number")
	if err == nil && have != wanted {
		err = fmt.Errorf("%s has the rows %q, wanted %q", pod, have, wanted)
	}
	return err
}

// inSet calls a function for the databases from first to last.
func inSet(first, last int, do func(pod string) error) error {
	for i := first; i <= last; i++ {
		if err := do(fmt.Sprintf("maria-%d", i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) setReady(limit time.Duration, replicas string) error {
	return c.want(limit, replicas+" "+replicas, ".status.readyReplicas} {.status.updatedReplicas", "-n", "shop", "statefulset", "maria")
}

func (c *cluster) fillRows(pod string) error {
	_, err := c.sql(pod, "CREATE DATABASE shop; CREATE TABLE shop.entries (number INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO shop.entries VALUES (1), (2), (3)")
	return err
}

func (c *cluster) createSet(note func(string, string)) error {
	progress("creating a StatefulSet with three databases")
	began := time.Now()
	if _, err := c.kubectl("get", "namespace", "shop"); err != nil {
		if _, err := c.kubectl("create", "namespace", "shop"); err != nil {
			return err
		}
	}
	if err := c.apply(mariadbManifest); err != nil {
		return err
	}
	if err := c.setReady(4*time.Minute, "3"); err != nil {
		return err
	}
	note("StatefulSet: three databases are ready after", seconds(time.Since(began).Seconds()))
	return inSet(0, 2, c.fillRows)
}

// killDatabase kills a database and its pod at once. Its successor reads the same volume.
func (c *cluster) killDatabase(note func(string, string)) error {
	uid, err := c.field(".metadata.uid", "-n", "shop", "pod", "maria-0")
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := c.kubectl("delete", "-n", "shop", "pod", "maria-0", "--force", "--grace-period=0"); err != nil {
		return err
	}
	err = eventually(2*time.Minute, "another pod maria-0", func() error {
		now, err := c.field(".metadata.uid", "-n", "shop", "pod", "maria-0")
		if err == nil && (now == uid || now == "") {
			err = fmt.Errorf("its UID is %q", now)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := c.ready(3*time.Minute, "shop", "maria-0"); err != nil {
		return err
	}
	note("StatefulSet: a killed database has its rows again after", seconds(time.Since(began).Seconds()))
	return c.rows("maria-0", kept)
}

// rollSet replaces all pods, and expects the rows in each.
func (c *cluster) rollSet(note func(string, string)) error {
	began := time.Now()
	if _, err := c.kubectl("rollout", "restart", "-n", "shop", "statefulset/maria"); err != nil {
		return err
	}
	if _, err := c.kubectl("rollout", "status", "-n", "shop", "statefulset/maria", "--timeout=240s"); err != nil {
		return err
	}
	note("StatefulSet: all databases are restarted after", seconds(time.Since(began).Seconds()))
	return inSet(0, 2, func(pod string) error { return c.rows(pod, kept) })
}

// scaleSet removes two databases with their volumes, and adds two with new ones.
func (c *cluster) scaleSet(note func(string, string)) error {
	began := time.Now()
	if _, err := c.kubectl("scale", "-n", "shop", "statefulset/maria", "--replicas=1"); err != nil {
		return err
	}
	if err := c.volumes("1"); err != nil {
		return err
	}
	note("StatefulSet: scaled to one, two volumes are gone after", seconds(time.Since(began).Seconds()))
	if _, err := c.kubectl("scale", "-n", "shop", "statefulset/maria", "--replicas=3"); err != nil {
		return err
	}
	if err := c.setReady(4*time.Minute, "3"); err != nil {
		return err
	}
	if err := c.rows("maria-0", kept); err != nil {
		return err
	}
	return inSet(1, 2, c.fillRows) // fails if an old volume came back
}

func (c *cluster) deleteSet(note func(string, string)) error {
	began := time.Now()
	if _, err := c.kubectl("delete", "-n", "shop", "statefulset/maria", "service/maria", "--timeout=120s"); err != nil {
		return err
	}
	if err := c.volumes("0"); err != nil {
		return err
	}
	note("StatefulSet: deleted, its volumes are gone after", seconds(time.Since(began).Seconds()))
	return nil
}

// volumes waits until there are so many persistent volumes.
func (c *cluster) volumes(wanted string) error {
	return eventually(3*time.Minute, "the volumes of the StatefulSet", func() error {
		names, err := c.kubectl("get", "pv", "-o", "name")
		if n := fmt.Sprint(len(strings.Fields(names))); err == nil && n != wanted {
			err = fmt.Errorf("there are %s persistent volumes, wanted %s", n, wanted)
		}
		return err
	})
}
