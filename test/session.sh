# session.sh: runs the tests of other projects so that they leave nothing behind, however they end.
# Sourced by the suites. The folder $scratch, if set, is removed when the script ends.
session='' scratch=''
trap 'end_session; [ -z "$scratch" ] || rm -rf "$scratch"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# session COMMAND...: runs the command in a session of its own. When it ends, everything it has
# started ends too. The process group alone would not do, since some tests put each server into a
# group of its own.
session() {
  local status=0
  setsid "$@" &
  session=$!
  # in the background: otherwise a signal would be handled only at the end
  wait "$session" || status=$?
  end_session
  return "$status"
}

# telling WHAT LOG PATTERN COMMAND...: runs the command with its output in LOG, and prints every 15
# seconds how many lines of LOG match PATTERN.
telling() {
  local what=$1 log=$2 pattern=$3 teller status=0
  shift 3
  # The loop ends with this script, even if the script is killed.
  while sleep 15 && kill -0 $$ 2>/dev/null; do
    echo "progress: $what: $(grep -acE "$pattern" "$log" 2>/dev/null || true) tests ended, $((SECONDS / 60)) min"
  done &
  teller=$!
  "$@" >"$log" 2>&1 || status=$?
  kill "$teller" 2>/dev/null || true
  wait "$teller" 2>/dev/null || true
  return "$status"
}

# end_session kills all processes of the session. A process that is just being started is killed in
# the next round.
end_session() {
  [ -n "$session" ] || return 0
  for _ in $(seq 100); do
    pkill -KILL -s "$session" -r D,R,S,T || break
    sleep 0.05
  done
  wait "$session" 2>/dev/null || true # bash would report that it was killed
  session=
}
