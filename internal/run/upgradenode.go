package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/knarr-project/knarr/internal/servers"
	"github.com/knarr-project/knarr/internal/upgrade"
)

// A joined node tells its version to a server and asks for its turn in an upgrade. It asks seldom
// unless an upgrade is under way.
const (
	askForTurnEvery   = 30 * time.Second
	askForTurnOften   = time.Second
	answerLimit       = 1 << 20
	programAnswerTime = time.Minute
)

// upgrader asks for the turns of a joined node.
type upgrader struct {
	agent  *upgrade.Agent
	client *http.Client
	url    string
	log    *slog.Logger
}

// followUpgrades replaces the program of a joined node when the cluster says so, until ctx ends.
func (w *worker) followUpgrades(ctx context.Context) {
	program, _ := installedProgram() // the agent says that it is unknown
	u := &upgrader{client: &http.Client{Transport: w.joined.reach}, url: "https://" + servers.Name, log: w.log.With("component", "upgrade")}
	u.agent = &upgrade.Agent{
		Kind: upgrade.Node, Name: w.cfg.NodeName, DataDir: w.cfg.DataDir, Program: program, Restart: w.restart, Log: u.log,
		Fetch: func(ctx context.Context, p upgrade.Program, offset int64) ([]byte, error) {
			return u.fetch(ctx, p, offset)
		},
		Tell: func(ctx context.Context, r upgrade.Report) { _, _ = u.ask(ctx, r) },
	}
	for ctx.Err() == nil {
		every := askForTurnEvery
		answer, err := u.ask(ctx, u.agent.Report())
		switch {
		case err != nil:
			u.log.Debug("cannot ask for a turn", "error", err)
		default:
			if answer.Active {
				every = askForTurnOften
			}
			u.follow(ctx, answer)
		}
		select {
		case <-ctx.Done():
		case <-time.After(every + rand.N(every/10)):
		}
	}
}

// follow gives the agent an Order without turns if another machine has its turn.
func (u *upgrader) follow(ctx context.Context, answer *upgrade.NodeAnswer) {
	o := answer.Order
	if o == nil && answer.Active {
		o = &upgrade.Order{}
	}
	u.agent.Follow(ctx, o)
}

// ask sends a Report and returns the answer.
func (u *upgrader) ask(ctx context.Context, r upgrade.Report) (*upgrade.NodeAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url+upgrade.NodePath, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := u.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answers %s", response.Status) // also an older server
	}
	answer := &upgrade.NodeAnswer{}
	return answer, json.Unmarshal(data, answer)
}

// fetch returns bytes of the program. A server may be busy with others for a moment.
func (u *upgrader) fetch(ctx context.Context, p upgrade.Program, offset int64) ([]byte, error) {
	var last error
	for range 30 {
		limited, cancel := context.WithTimeout(ctx, programAnswerTime)
		data, err := upgrade.FetchFrom(limited, u.client, u.url, p, offset)
		cancel()
		if err == nil {
			return data, nil
		}
		last = err
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), last)
		case <-time.After(time.Second):
		}
	}
	return nil, last
}
