package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestAFigureIsLeftOutWhenRequestsFailed(t *testing.T) {
	quick := []time.Duration{time.Millisecond, 2 * time.Millisecond}
	for name, c := range map[string]struct {
		t          timing
		cell, held string
	}{
		"all answered": {timing{times: quick}, "2.00 ms (highest 2ms)", "yes"},
		"one refused":  {timing{times: quick, failed: 1, err: errors.New("429")}, "1 of 2 failed: 429; p99 of all 2ms, highest 2ms", "no"},
		"nothing sent": {timing{}, "0s", "no"},
	} {
		table := render(map[string]figures{"knarr": {"overload-livez": c.t.figure()}})
		for line := range strings.Lines(table) {
			if strings.Contains(line, "p99 of /livez") && (!strings.Contains(line, c.cell) || !strings.HasSuffix(strings.TrimSpace(line), "| "+c.held+" |")) {
				t.Errorf("%s: %s, want %s and %s", name, line, c.cell, c.held)
			}
		}
	}
}

func TestAFloodWithoutConnectionCountsMissingAnswers(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	fl, ended := &flood{clients: 1}, make(chan struct{})
	go func() {
		defer close(ended)
		fl.run(ctx, &clients{address: "127.0.0.1:0"})
	}()
	for fl.broken.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	<-ended
	if got := fl.String(); !strings.HasPrefix(got, "1 clients, ") || strings.Contains(got, " 0 without an answer") {
		t.Error(got)
	}
}
