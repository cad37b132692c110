package run

import (
	"bufio"
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

	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/servers"
	"github.com/knarr-project/knarr/internal/upgrade"
)

// A joined node tells its version to a server, and watches for its turn in an upgrade. It asks
// again when the watch ends, and instead of a watch if the server is too old for one.
const (
	askForTurnEvery   = 30 * time.Second
	askForTurnOften   = time.Second
	tellTime          = 20 * time.Second
	answerLimit       = 1 << 20
	programAnswerTime = time.Minute
)

// upgrader follows the turns of a joined node.
type upgrader struct {
	agent  *upgrade.Agent
	client *http.Client
	url    string
	log    *slog.Logger
	// every and often are the pauses between two questions, usually and during an upgrade.
	every, often time.Duration
}

// followUpgrades replaces the program of a joined node when the cluster says so, until ctx ends.
func (w *worker) followUpgrades(ctx context.Context) {
	program, _ := installedProgram() // the agent says that it is unknown
	u := &upgrader{
		client: &http.Client{Transport: w.joined.reach}, url: "https://" + servers.Name, log: w.log.With("component", "upgrade"),
		every: askForTurnEvery, often: askForTurnOften,
	}
	u.agent = &upgrade.Agent{
		Kind: upgrade.Node, Name: w.cfg.NodeName, DataDir: w.cfg.DataDir, Program: program, Restart: w.restart, Log: u.log,
		Fetch: func(ctx context.Context, p upgrade.Program, offset int64) ([]byte, error) {
			return u.fetch(ctx, p, offset)
		},
		Tell: u.tell,
	}
	u.run(ctx)
}

// run follows turns until ctx ends. A turn takes minutes; the agent gets the latest answer after
// it.
func (u *upgrader) run(ctx context.Context) {
	answers := make(chan *upgrade.NodeAnswer, 1)
	_ = process.Alongside(ctx,
		process.Part(func(ctx context.Context) { u.listen(ctx, answers) }),
		process.Part(func(ctx context.Context) {
			for {
				select {
				case <-ctx.Done():
					return
				case answer := <-answers:
					u.follow(ctx, answer)
				}
			}
		}))
}

// listen puts a server's latest answer into a channel of size 1, until ctx ends.
func (u *upgrader) listen(ctx context.Context, answers chan *upgrade.NodeAnswer) {
	active := false
	put := func(answer *upgrade.NodeAnswer) {
		active = answer.Active
		select {
		case <-answers: // an outdated one
		default:
		}
		answers <- answer // only this goroutine puts
	}
	for ctx.Err() == nil {
		answer, err := u.ask(ctx, u.agent.Report())
		if err == nil {
			put(answer)
			err = u.watch(ctx, put)
		}
		every := u.every
		if active || err == nil {
			every = u.often
		}
		if err != nil && ctx.Err() == nil {
			u.log.Debug("cannot watch for a turn", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(every + rand.N(every)):
		}
	}
}

// watch passes a server's answers on until the stream ends. The error is nil if there was one.
func (u *upgrader) watch(ctx context.Context, put func(*upgrade.NodeAnswer)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url+upgrade.WatchPath, nil)
	if err != nil {
		return err
	}
	response, err := u.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %s", response.Status) // also an older server
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, answerLimit)
	some := false
	for lines.Scan() {
		answer := &upgrade.NodeAnswer{}
		if err := json.Unmarshal(lines.Bytes(), answer); err != nil {
			return fmt.Errorf("the server's answer is not usable: %w", err)
		}
		some = true
		put(answer)
	}
	if err := lines.Err(); err != nil && !some {
		return err
	}
	if !some {
		return errors.New("the server has ended the watch without an answer")
	}
	return nil
}

// follow gives the agent an Order without turns if another machine has its turn.
func (u *upgrader) follow(ctx context.Context, answer *upgrade.NodeAnswer) {
	o := answer.Order
	if o == nil && answer.Active {
		o = &upgrade.Order{}
	}
	u.agent.Follow(ctx, o)
}

// tell sends a Report. It tries again for some time, because a server may be restarting.
func (u *upgrader) tell(ctx context.Context, r upgrade.Report) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	for {
		_, err := u.ask(ctx, r)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			u.log.Warn("cannot tell how far the upgrade of this node is", "error", err)
			return
		case <-time.After(u.often):
		}
	}
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
