package main

import (
	"fmt"
	"strings"
)

// figures are results by key. A figure that could not be measured has a note with the reason.
type figures map[string]figure

type figure struct {
	value float64
	note  string
}

// rows is the table of budgets (ARCHITECTURE §7). better is +1 if more is better. A budget of 0
// means that the row has none.
var rows = []struct {
	key, what, unit string
	budget          float64
	better          int
}{
	{"ready", "control plane: start to /readyz, empty data folder", "s", 0.4, -1},
	{"first-pod", "node with control plane: start to first pod Ready, empty data folder", "s", 3, -1},
	{"idle-anon", "control plane idle: RssAnon", "MB", 50, -1},
	{"idle-rss", "control plane idle: RSS", "MB", 150, -1},
	{"node-anon", "everything on one node idle: RssAnon", "MB", 90, -1},
	{"node-rss", "everything on one node idle: RSS", "MB", 230, -1},
	{"size", "size of the binaries", "MB", 120, -1},
	{"idle-cpu", "idle CPU of everything on one node", "% of a core", 1, -1},
	{"create", "create, 64 in flight, each on disk (fsync)", "/s", 6000, 1},
	{"get", "get, 64 in flight", "/s", 15000, 1},
	{"patch", "merge patch, 64 in flight, each on disk (fsync)", "/s", 4500, 1},
	{"list-json", "list 5,000 pods, JSON, 8 in flight", "/s", 120, 1},
	{"list-proto", "list 5,000 pods, protobuf, 8 in flight", "/s", 200, 1},
	{"watch", "watch events delivered, 1,000 streams, HTTP/1.1", "/s", 1000000, 1},
	{"watch-h2", "watch events delivered, 1,000 streams, HTTP/2", "/s", 1000000, 1},
	{"idle-watch", "one of 10,000 idle watches, HTTP/1.1: RssAnon", "KiB", 10, -1},
	{"idle-watch-h2", "one of 10,000 idle watches, HTTP/2: RssAnon", "KiB", 10, -1},
	{"relist", "1,000 clients list after a restart: peak RSS over settled RSS", "×", 2, -1},
	{"storm", "50 clients list 100,000 pods: write p99 (fsync) over p99 without lists", "×", 2, -1},
	{"overload-lease", "overload: p99 of node lease updates (fsync)", "ms", 1000, -1},
	{"overload-livez", "overload: p99 of /livez", "ms", 1000, -1},
	{"overload-normal", "overload: until the clients are served again", "s", 1, -1},
	{"crd-memory", "one of 1,000 CustomResourceDefinitions with an object: RSS", "MB", 0.3, -1},
	{"crd-served", "1,000 CustomResourceDefinitions: longest time from creation to served", "ms", 1000, -1},
	{"churn-rss", "RSS after 5,000 pods of churn", "MB", 300, -1},
	{"schedule", "schedule 5,000 pods on 1,000 nodes, create to bound (fsync)", "/s", 3500, 1},
	{"create3", "three servers: create, 63 in flight, each on two disks (fsync)", "/s", 0, 1},
	{"create3-p99", "three servers: p99 of these creates", "ms", 0, -1},
	{"get3", "three servers: linearizable get, 63 in flight", "/s", 0, 1},
	{"get3-p99", "three servers: p99 of these gets", "ms", 0, -1},
	{"watch3-p99", "three servers: p99 from a write's sending to its event at each of them", "ms", 0, -1},
	{"stop3", "three servers: longest time without a write after a stop of the leader, p99", "ms", 100, -1},
	{"kill3", "three servers: longest time without a write after kill -9 of the leader, p99", "ms", 1500, -1},
	{"controllers3", "three servers: controllers act again after kill -9 of theirs, p99", "s", 5, -1},
	{"member-anon", "one of three servers idle: RssAnon", "MB", 0, -1},
	{"member-rss", "one of three servers idle: RSS", "MB", 0, -1},
	{"pod-ready", "one pod (image present), create to Ready", "ms", 80, -1},
	{"pod-gone", "one pod, delete to gone", "ms", 50, -1},
	{"fifty", "50 pods at once, create to all Ready", "s", 1.5, -1},
	{"pods-anon", "110 idle pods on one node: RssAnon of everything but their processes", "MB", 250, -1},
	{"pods-cpu", "110 idle pods on one node: idle CPU of everything", "% of a core", 2, -1},
	{"idle-gone", "one of 110 idle pods, delete to gone", "ms", 50, -1},
}

func render(results map[string]figures) string {
	var b strings.Builder
	b.WriteString("| what | upstream | knarr | ratio | budget | held |\n|---|---:|---:|---:|---:|---|\n")
	up, own := results["upstream"], results["knarr"]
	for _, r := range rows {
		u, k := up[r.key], own[r.key]
		ratio, held := "", ""
		if u.value > 0 && k.value > 0 {
			if r.better > 0 {
				ratio = fmt.Sprintf("%.1f ×", k.value/u.value)
			} else {
				ratio = fmt.Sprintf("1/%.1f", u.value/k.value)
			}
		}
		budget := "—"
		if r.budget > 0 {
			budget = number(r.budget) + " " + r.unit
		}
		if r.budget > 0 && (k.value > 0 || k.note != "") {
			held = "no"
			if k.value > 0 && (k.value-r.budget)*float64(r.better) >= 0 {
				held = "yes"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.what, cell(u, r.unit), cell(k, r.unit), ratio, budget, held)
	}
	return b.String()
}

func cell(f figure, unit string) string {
	switch {
	case f.value == 0 && f.note == "":
		return "—"
	case f.value == 0:
		return f.note
	case f.note != "":
		return number(f.value) + " " + unit + " (" + f.note + ")"
	}
	return number(f.value) + " " + unit
}

func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
