package insight

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/insight/why"
)

// usageError is a wrong command line.
type usageError struct{ err error }

func (u *usageError) Error() string { return u.err.Error() }

func wrong(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// asking makes a question of the arguments of `knarr why`.
type asking struct {
	*whyFlags
	program *Program
	cmd     *cobra.Command
	reader  *why.ClusterReader
	// settled returns the text and the exit status of an answer that needs no findings, or "".
	settled func(*why.Answer) (text string, status int)
}

func (a *asking) question(args []string) (q why.Question, err error) {
	switch {
	case len(args) > 0 && args[0] == "deny":
		return a.denial(args[1:])
	case a.as != "" || a.port != 0:
		return q, wrong("--as and --port belong to `knarr why deny`")
	case len(args) == 0 && a.all:
		return q, nil
	case len(args) == 0:
		return why.Question{Namespace: a.Namespace}, nil
	}
	ref, err := a.object(args, a.Namespace)
	return why.Question{Subject: &ref}, err
}

// object reads KIND/NAME or KIND NAME.
func (a *asking) object(args []string, namespace string) (why.Ref, error) {
	kindName, name, ok := strings.Cut(args[0], "/")
	switch {
	case !ok && len(args) == 2:
		name = args[1]
	case len(args) != 1 || !ok || name == "":
		return why.Ref{}, wrong("%q is no object: name one as KIND/NAME, such as pod/web-0", strings.Join(args, " "))
	}
	kind, known := why.ResolveKind(kindName)
	if !known {
		ref, err := a.reader.Resolve(a.cmd.Context(), kindName, namespace, name)
		if errors.Is(err, why.ErrNoKind) {
			err = &usageError{err}
		}
		return ref, err
	}
	if !kind.Namespaced {
		namespace = ""
	}
	return why.Ref{Kind: kind.Kind.Kind, Namespace: namespace, Name: name}, nil
}

// denial reads what was denied: a message of the API server, a connection, or a request.
func (a *asking) denial(args []string) (why.Question, error) {
	if len(args) == 1 {
		r, ok := why.ParseForbidden(args[0])
		if !ok {
			return why.Question{}, wrong("%q is no message of the API server about a denied request", args[0])
		}
		a.as = r.User
		r.Groups = a.groupsOf(r.User)
		return a.ask(r), nil
	}
	if a.port != 0 {
		return a.connection(args)
	}
	return a.request(args)
}

// request reads VERB RESOURCE[/NAME], or VERB /PATH.
func (a *asking) request(args []string) (q why.Question, err error) {
	if len(args) != 2 {
		return q, wrong("deny needs VERB RESOURCE[/NAME], such as: list secrets; two objects with --port 1-65535; or the message of the API server")
	}
	r := why.Request{User: a.as, Verb: strings.ToLower(args[0])}
	if strings.HasPrefix(args[1], "/") {
		r.Path = args[1]
	} else if err := a.resource(&r, args[1]); err != nil {
		return q, err
	}
	if a.as != "" {
		r.Groups = a.groupsOf(a.as)
		return a.ask(r), nil
	}
	if r.User, r.Groups, err = a.reader.Caller(a.cmd.Context()); err != nil {
		return q, err
	}
	return a.ask(r), nil
}

// resource reads RESOURCE[:SUBRESOURCE][/NAME].
func (a *asking) resource(r *why.Request, text string) error {
	resource, name, _ := strings.Cut(text, "/")
	resource, sub, _ := strings.Cut(resource, ":")
	r.Resource, r.Subresource, r.Name, r.Namespace = resource, sub, name, a.Namespace
	if kind, ok := why.ResolveKind(resource); ok {
		r.Group, r.Resource = kind.Kind.Group, kind.Resource
		if !kind.Namespaced {
			r.Namespace = ""
		}
	} else if plural, group, ok := strings.Cut(resource, "."); ok {
		r.Resource, r.Group = plural, group
	} else {
		return wrong("there is no built-in resource %q: write others as RESOURCE.GROUP", resource)
	}
	if a.all {
		r.Namespace = ""
	}
	return nil
}

// groupsOf returns the groups that the API server adds to a user, and those of --as-group.
func (a *asking) groupsOf(user string) []string {
	groups := append([]string{"system:authenticated"}, a.groups...)
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	return groups
}

// ask makes the question about a request. RBAC is not the only authorizer, so the API server is
// asked too, if the caller may.
func (a *asking) ask(r why.Request) (q why.Question) {
	reason := ""
	q.Ask = func(s *why.Snapshot) (found []why.Finding) {
		found, reason = why.Denied(s, r)
		return found
	}
	a.settled = func(answer *why.Answer) (string, int) {
		allowed, other, err := a.reader.Review(a.cmd.Context(), r)
		denied := len(answer.Findings) > 0
		switch {
		case err == nil && allowed && denied:
			answer.Findings, answer.Roots = nil, nil
			return r.User + " may " + r.String() + ", and not by RBAC: " + cmp.Or(other, "another authorizer allows it") + ".", 0
		case err == nil && !allowed && !denied:
			return "RBAC lets " + r.User + " " + r.String() + " (" + reason + "), and another authorizer denies it: " + cmp.Or(other, "it names no reason") + ".", notWell
		case !denied:
			return r.User + " may " + r.String() + ": " + reason + ".", 0
		}
		return "", 0
	}
	return q
}

// connection reads a pod, and a pod or a Service to which it connects.
func (a *asking) connection(args []string) (q why.Question, err error) {
	if len(args) != 2 || a.port < 1 || a.port > 65535 {
		return q, wrong("deny needs two objects with --port 1-65535: a pod, and a pod or a Service")
	}
	t := why.Traffic{Port: a.port, Protocol: corev1.Protocol(strings.ToUpper(a.protocol))}
	for i, to := range []*why.Ref{&t.From, &t.To} {
		namespace, arg := a.Namespace, args[i]
		if strings.Count(arg, "/") == 2 {
			namespace, arg, _ = strings.Cut(arg, "/")
		}
		if *to, err = a.object([]string{arg}, namespace); err != nil {
			return q, err
		}
		if to.Kind != "Pod" && (i == 0 || to.Kind != "Service") {
			return q, wrong("%s is not usable: a connection is from a pod to a pod or a Service", args[i])
		}
	}
	q.Ask = func(s *why.Snapshot) []why.Finding { return why.Blocked(s, t) }
	a.settled = func(answer *why.Answer) (string, int) {
		if len(answer.Findings) > 0 {
			return "", 0
		}
		return fmt.Sprintf("No NetworkPolicy denies %s to reach %s at %s port %d.", t.From, t.To, t.Protocol, t.Port), 0
	}
	return q, nil
}
