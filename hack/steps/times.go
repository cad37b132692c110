package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// whole is the name under which the duration of a complete run is stored.
const whole = "all"

// readTimes returns the durations of the last successful run, by step.
func readTimes(path string) map[string]time.Duration {
	text, _ := os.ReadFile(path) // missing before the first run
	times := map[string]time.Duration{}
	for line := range strings.Lines(string(text)) {
		name, seconds, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(seconds); err == nil {
			times[name] = time.Duration(n) * time.Second
		}
	}
	return times
}

func writeTimes(path string, times map[string]time.Duration) error {
	var lines []string
	for name, took := range times {
		lines = append(lines, fmt.Sprintf("%s %d\n", name, int(took.Round(time.Second).Seconds())))
	}
	slices.Sort(lines)
	return os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644)
}
