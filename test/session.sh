# session.sh: how a suite runs the tests of others so that nothing of them stays, however it ends. Sourced; $scratch, once it is set, goes with the script.
session='' scratch=''
trap 'end_session; [ -z "$scratch" ] || rm -rf "$scratch"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# session COMMAND...: the command in a session of its own. What it has started and not ended then ends with it; not by its process group alone,
# as some tests put each server into one of its own.
session() {
  local status=0
  setsid "$@" &
  session=$!
  wait "$session" || status=$? # not in the foreground: a signal would be heard only afterwards
  end_session
  return "$status"
}

# telling WHAT LOG PATTERN COMMAND...: the command with its output in LOG, and a line every 15 seconds that says how many of LOG's lines match PATTERN.
telling() {
  local what=$1 log=$2 pattern=$3 teller status=0
  shift 3
  # It ends with this script, should that be killed.
  while sleep 15 && kill -0 $$ 2>/dev/null; do
    echo "progress: $what: $(grep -acE "$pattern" "$log" 2>/dev/null || true) tests ended, $((SECONDS / 60)) min"
  done &
  teller=$!
  "$@" >"$log" 2>&1 || status=$?
  kill "$teller" 2>/dev/null || true
  wait "$teller" 2>/dev/null || true
  return "$status"
}

# end_session asks nobody: what is left is not needed. Who is about to be born is met the next time.
end_session() {
  [ -n "$session" ] || return 0
  for _ in $(seq 100); do
    pkill -KILL -s "$session" -r D,R,S,T || break
    sleep 0.05
  done
  wait "$session" 2>/dev/null || true # bash would tell that it was killed
  session=
}
