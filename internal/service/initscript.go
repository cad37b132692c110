package service

import "strings"

// Files of the init script.
const (
	pidFile    = "/run/knarr-service.pid"
	errorsFile = "/var/log/knarr-service.log"
)

// SysV returns the init script for /etc/init.d with the header that update-rc.d and chkconfig read.
func SysV(s Service) string {
	return "#!/bin/sh\n" + s.header() + `# chkconfig: 2345 90 10
# description: knarr, a whole Kubernetes
### BEGIN INIT INFO
# Provides:          knarr
# Required-Start:    $local_fs $network $remote_fs
# Required-Stop:     $local_fs $network $remote_fs
# Should-Start:      $time $named
# Default-Start:     2 3 4 5
# Default-Stop:      0 1 6
# Short-Description: knarr, a whole Kubernetes
### END INIT INFO
` + functions(s) + `
case "$1" in
start | stop | status) "$1" ;;
restart | force-reload) stop && start ;;
*)
	echo "usage: $0 start|stop|restart|status" >&2
	exit 2
	;;
esac
`
}

// OpenRC returns the init script for OpenRC. It has functions instead of the choice at the end.
func OpenRC(s Service) string {
	return "#!/sbin/openrc-run\n" + s.header() + `description="knarr, a whole Kubernetes"
# Pods survive: OpenRC must not end the other processes of the service's cgroup.
rc_cgroup_cleanup="no"

depend() {
	need localmount
	use net dns logger
	after firewall cgroups
}
` + functions(s)
}

// functions returns the part that both scripts share. The supervisor is this script again, in a
// session of its own. It starts knarr again unless knarr ends without an error.
func functions(s Service) string {
	return strings.NewReplacer("@COMMAND@", s.Command(), "@SCRIPT@", scriptPath, "@PIDFILE@", pidFile, "@ERRORS@", errorsFile).Replace(`
script=@SCRIPT@
pidfile=@PIDFILE@
# Errors before knarr opens its own log, which is knarr.log in the data folder.
errors=@ERRORS@

# alive tells whether the supervisor runs, and sets pid. Another process may have its pid now.
alive() {
	pid=$(cat "$pidfile" 2>/dev/null)
	[ -n "$pid" ] && grep -q -F "$script" "/proc/$pid/cmdline" 2>/dev/null
}

supervise() {
	echo $$ >"$pidfile"
	stopping= child= waiting=
	trap 'stopping=yes; kill $child $waiting 2>/dev/null' TERM
	while [ -z "$stopping" ]; do
		KNARR_BACKGROUND=1 @COMMAND@ </dev/null >/dev/null 2>"$errors" &
		child=$!
		[ -z "$stopping" ] || kill "$child"
		wait "$child"
		status=$?
		while kill -0 "$child" 2>/dev/null; do # the signal has ended the wait
			wait "$child"
			status=$?
		done
		child=
		[ "$status" -ne 0 ] || break
		[ -z "$stopping" ] || break
		sleep 5 &
		waiting=$!
		wait "$waiting"
		waiting=
	done
	rm -f "$pidfile"
}

start() {
	if alive; then
		echo "knarr runs already"
		return 0
	fi
	KNARR_SUPERVISE=yes setsid sh "$script" </dev/null >/dev/null 2>&1 &
	sleep 2
	if ! alive; then
		echo "knarr has not started" >&2
		cat "$errors" >&2
		return 1
	fi
}

# stop ends knarr. Its pods keep running.
stop() {
	if ! alive; then
		echo "knarr does not run"
		return 0
	fi
	kill "$pid"
	left=90
	while alive; do
		if [ "$left" -eq 0 ]; then
			echo "knarr has not stopped in 90 seconds" >&2
			return 1
		fi
		left=$((left - 1))
		sleep 1
	done
}

status() {
	if alive; then
		echo "knarr runs"
		return 0
	fi
	echo "knarr does not run"
	return 3
}

if [ -n "$KNARR_SUPERVISE" ]; then
	unset KNARR_SUPERVISE
	supervise
	exit 0
fi
`)
}
