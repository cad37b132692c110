package lead_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/lead"
)

// Every committed write must be of the term that the term key shows at that revision, whatever the
// leaders believe: they go on writing after their terms.
func TestNoTwoLeadersAct(t *testing.T) {
	s := open(t)
	const writes = "/registry/writes/"
	stream, err := s.Watch(t.Context(), "/registry/", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()

	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	var refused, terms int
	var mu sync.Mutex
	var stores []*breakable
	for i := range 3 {
		b := &breakable{Store: s}
		stores = append(stores, b)
		name := fmt.Sprint("candidate ", i)
		late := func(term *lead.Term) {
			own := store.WithFence(context.WithoutCancel(ctx), term.Fence)
			for ctx.Err() == nil {
				_, err := s.Commit(own, nil, store.Op{Key: writes + name, Value: fmt.Append(nil, term.Term)})
				if err == nil {
					continue
				}
				mu.Lock()
				refused++
				mu.Unlock()
				if !errors.Is(err, store.ErrFenced) {
					t.Error(err)
				}
				return
			}
		}
		all.Go(func() {
			for life := 0; ctx.Err() == nil; life++ {
				life, end := context.WithTimeout(ctx, time.Duration(100+rand.IntN(400))*time.Millisecond)
				c := lead.Candidate{Store: b, Key: key, Log: slog.New(slog.DiscardHandler), Self: lead.Holder{Name: name, Home: name, Process: fmt.Sprint(name, life)}}
				err := c.Run(life, func(ctx context.Context, term *lead.Term) error {
					mu.Lock()
					terms++
					mu.Unlock()
					all.Go(func() { late(term) })
					select {
					case <-ctx.Done():
					case <-time.After(time.Duration(rand.IntN(100)) * time.Millisecond):
						term.Fence.Lost()
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				end()
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			b := stores[rand.IntN(len(stores))]
			b.broken.Store(true)
			time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
			b.broken.Store(false)
		}
	})
	time.Sleep(4 * time.Second)
	stop()
	all.Wait()

	last, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var current lead.Holder
	acted := 0
	for at := int64(0); at < last; {
		b, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		at = b.Revision
		for _, e := range b.Events {
			switch {
			case e.KV.Key == key+"/term":
				before := current.Term
				if err := json.Unmarshal(e.KV.Value, &current); err != nil {
					t.Fatal(err)
				}
				if current.Term <= before {
					t.Errorf("term %d follows %d", current.Term, before)
				}
			case e.Type == store.Put && strings.HasPrefix(e.KV.Key, writes):
				acted++
				if e.KV.Key != writes+current.Name || string(e.KV.Value) != fmt.Sprint(current.Term) {
					t.Errorf("revision %d: %s wrote in term %s; the leader is %s in term %d", e.KV.ModRevision, e.KV.Key, e.KV.Value, current.Name, current.Term)
				}
			}
		}
		_ = stream.Progress(t.Context())
	}
	t.Logf("%d terms, %d writes, %d refused", terms, acted, refused)
	if terms < 3 || acted == 0 || refused == 0 {
		t.Error("the test has shown nothing")
	}
}
