package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/upgrade"
)

// orders has the latest Order for the server's own agent and for the watches of nodes. Readers
// that are slow miss Orders between.
type orders struct {
	mu      sync.Mutex // guards the fields below
	order   *upgrade.Order
	number  int           // of publications; 0 means that the Order is unknown
	changed chan struct{} // closed by the next publication
}

func newOrders() *orders { return &orders{changed: make(chan struct{})} }

func (o *orders) publish(order *upgrade.Order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.order = order
	o.number++
	close(o.changed)
	o.changed = make(chan struct{})
}

// next waits for a publication after the one with the number seen. It returns the latest Order, nil
// for none, and its number. The Order is shared and read-only.
func (o *orders) next(ctx context.Context, seen int) (*upgrade.Order, int, error) {
	for {
		o.mu.Lock()
		order, number, changed := o.order, o.number, o.changed
		o.mu.Unlock()
		if number > seen {
			return order, number, nil
		}
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-changed:
		}
	}
}

// nodeOf returns the name of the node that sends a request. It answers the request if the client is
// no node.
func nodeOf(w http.ResponseWriter, r *http.Request) (name string, ok bool) {
	user, _ := auth.UserFrom(r.Context())
	name, ok = strings.CutPrefix(user.Name, "system:node:")
	if !ok || name == "" || len(name) > 253 || !slices.Contains(user.Groups, auth.GroupNodes) {
		http.Error(w, "only a node may ask here", http.StatusForbidden)
		return "", false
	}
	return name, true
}

// serveNodeReport takes a node's Report and answers with its turn.
func (s *Server) serveNodeReport(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "method not allowed: POST", http.StatusMethodNotAllowed)
		return
	}
	name, ok := nodeOf(w, r)
	if !ok {
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, upgrade.MaxRequest))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	report, err := upgrade.ParseReport(data)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	report.Kind, report.Name, report.Node = upgrade.Node, name, false
	if err := s.storeReport(r.Context(), report); err != nil {
		answerError(w, err)
		return
	}
	o, err := s.readOrder(r.Context())
	if err != nil {
		answerError(w, err)
		return
	}
	answerJSON(w, answerNode(o, name))
}

// answerNode tells a node its own turn, and nothing about others.
func answerNode(o *upgrade.Order, name string) upgrade.NodeAnswer {
	if o == nil {
		return upgrade.NodeAnswer{}
	}
	for _, t := range o.Turns {
		if t.Kind == upgrade.Node && t.Name == name {
			own := *o
			own.Turns, own.Generation = []upgrade.Turn{t}, 0
			return upgrade.NodeAnswer{Active: true, Order: &own}
		}
	}
	return upgrade.NodeAnswer{Active: true}
}

// A node's watch ends after nodeWatchTime, and at most half as much more. The node then tells its
// state again, and its credentials are checked again. A write to a node may take nodeWriteTime.
const (
	nodeWatchTime = 10 * time.Minute
	nodeWriteTime = 10 * time.Second
)

// serveNodeWatch sends a node its NodeAnswer, and each different one after it.
func (s *Server) serveNodeWatch(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "method not allowed: GET", http.StatusMethodNotAllowed)
		return
	}
	name, ok := nodeOf(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), nodeWatchTime+rand.N(nodeWatchTime/2))
	defer cancel()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	var last []byte
	for seen := 0; ; {
		o, n, err := s.orders.next(ctx, seen)
		if err != nil {
			return
		}
		seen = n
		line, err := json.Marshal(answerNode(o, name))
		if err != nil {
			return
		}
		if bytes.Equal(line, last) {
			continue
		}
		last = line
		_ = out.SetWriteDeadline(time.Now().Add(nodeWriteTime))
		if _, err = w.Write(append(line, '\n')); err == nil {
			err = out.Flush()
		}
		_ = out.SetWriteDeadline(time.Time{})
		if err != nil {
			return
		}
	}
}
