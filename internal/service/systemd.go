package service

import "strings"

// Unit returns the unit of systemd.
//
// Restart=on-failure instead of always: `knarr stop` ends the process without an error, and it
// stays stopped. Every other end, including a panic's status 2, is a failure.
func Unit(s Service) string {
	words := []string{unitWord(s.Program)}
	for _, word := range s.Args {
		words = append(words, unitWord(word))
	}
	return s.header() + `[Unit]
Description=knarr, a whole Kubernetes
Documentation=https://github.com/knarr-project/knarr
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=` + strings.Join(words, " ") + `
Restart=on-failure
RestartSec=5
# Pods survive: systemd ends knarr's process only, also when the kernel ends one of a pod.
KillMode=process
OOMPolicy=continue
# All cgroup controllers are on, and systemd leaves the cgroups below the service alone.
Delegate=yes
# Not before everything else when memory is short.
OOMScoreAdjust=-999
LimitNOFILE=1048576
LimitNPROC=infinity
TasksMax=infinity

[Install]
WantedBy=multi-user.target
`
}

// unitWord quotes a word of ExecStart. systemd expands '%' and '$' also within quotes.
func unitWord(word string) string {
	word = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(word)
	if word == "" || strings.ContainsAny(word, " ;'\"\\") {
		return `"` + word + `"`
	}
	return word
}
