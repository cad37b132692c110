package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// Keys of the store by which servers take turns.
const (
	// turnKey exists, attached to a lease, while a server takes a snapshot.
	turnKey = "/knarr/snapshots/turn"
	// sharedKey names the newest scheduled snapshot in S3, for all servers.
	sharedKey = "/knarr/snapshots/shared"
)

// turnTTL is the lease's lifetime: after a crash, another server may begin after this time.
const turnTTL = 15 * time.Second

// errTaken means that another server takes a snapshot now.
var errTaken = errors.New("another server takes a snapshot now")

// turn runs fn while no other server takes a snapshot. It returns errTaken at once if one does.
func turn(ctx context.Context, db store.Store, server string, log *slog.Logger, fn func(ctx context.Context) error) error {
	lease, err := db.Grant(ctx, turnTTL)
	if err != nil {
		return fmt.Errorf("take turns with other servers: %w", err)
	}
	end, cancel := context.WithCancel(ctx)
	kept := make(chan struct{})
	defer func() {
		cancel()
		<-kept
		revoke, done := context.WithTimeout(context.WithoutCancel(ctx), turnTTL)
		defer done()
		if err := db.Revoke(revoke, lease); err != nil && !errors.Is(err, store.ErrLeaseNotFound) {
			log.Warn("the next snapshot has to wait for a lease to expire", "error", err)
		}
	}()
	go func() {
		defer close(kept)
		every := time.NewTicker(turnTTL / 3)
		defer every.Stop()
		for {
			select {
			case <-end.Done():
				return
			case <-every.C:
			}
			if err := db.KeepAlive(end, lease); err != nil && end.Err() == nil {
				log.Warn("another server may take a snapshot at the same time", "error", err)
			}
		}
	}()
	won, err := db.Commit(ctx, []store.Condition{{Key: turnKey}}, store.Op{Key: turnKey, Value: []byte(server), Lease: lease})
	if err != nil {
		return fmt.Errorf("take turns with other servers: %w", err)
	}
	if !won.Succeeded {
		return errTaken
	}
	return fn(ctx)
}

// shared is the value of sharedKey.
type shared struct {
	Name  string    `json:"name"`
	Taken time.Time `json:"taken"`
}

// sharedTime returns the time of the newest scheduled snapshot in S3, as the store knows it.
func sharedTime(ctx context.Context, db store.Store) (time.Time, error) {
	kv, _, err := db.Get(ctx, sharedKey, 0)
	if err != nil || kv == nil {
		return time.Time{}, err
	}
	var s shared
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		return time.Time{}, fmt.Errorf("%s in the store: %w", sharedKey, err)
	}
	return s.Taken, nil
}

func noteShared(ctx context.Context, db store.Store, r *Record) error {
	data, err := json.Marshal(shared{r.Name, r.Taken})
	if err != nil {
		return err
	}
	_, err = db.Commit(ctx, nil, store.Op{Key: sharedKey, Value: data})
	return err
}
