// Package main is an etcd for tests of clusters with an outside store: `etcd FOLDER IP`. It serves
// clients at port 2379 without TLS, as one member, until it is killed.
package main

import (
	"fmt"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("usage: etcd FOLDER IP")
	}
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = os.Args[1], "warn"
	client := url.URL{Scheme: "http", Host: os.Args[2] + ":2379"}
	peer := url.URL{Scheme: "http", Host: os.Args[2] + ":2380"}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	return <-e.Err()
}
