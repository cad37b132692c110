#!/bin/bash
# node-systemctl.sh stands for systemctl where upstream's node suite runs: it knows one unit, the
# node agent. SUITE is the suite's folder, which holds the agent's command and process id.
set -euo pipefail
pid=$(cat "$SUITE/pid" 2>/dev/null || true)
alive() { [ -n "$pid" ] && [ -e "/proc/$pid" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null; }
end() { # end SIGNAL
  alive || return 0
  kill "-$1" "$pid"
  while alive; do sleep 0.1; done
}
begin() {
  setsid bash "$SUITE/agent" </dev/null >/dev/null 2>&1 &
  echo $! >"$SUITE/pid"
}
case ${1:-} in
list-units)
  if alive; then echo 'kubelet-knarr.service loaded active running'; elif [[ $* != *--state=running* ]]; then echo 'kubelet-knarr.service loaded failed failed'; fi ;;
start) alive || begin ;;
restart) end TERM; begin ;;
stop) end TERM ;;
kill) end TERM ;;
reset-failed | daemon-reload) ;;
*) echo "systemctl $*: only the node agent is a unit here" >&2; exit 1 ;;
esac
