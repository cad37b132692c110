package pods

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

// validateProbes checks the probes of a long-running container.
func validateProbes(c *corev1.Container, at *field.Path) field.ErrorList {
	errs := validateProbe(c.LivenessProbe, at.Child("livenessProbe"))
	errs = append(errs, validateProbe(c.ReadinessProbe, at.Child("readinessProbe"))...)
	errs = append(errs, validateProbe(c.StartupProbe, at.Child("startupProbe"))...)
	for name, p := range map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe, "startupProbe": c.StartupProbe} {
		if p == nil {
			continue
		}
		if p.SuccessThreshold != 1 {
			errs = append(errs, field.Invalid(at.Child(name, "successThreshold"), p.SuccessThreshold, "must be 1"))
		}
		if s := p.TerminationGracePeriodSeconds; s != nil && *s <= 0 {
			errs = append(errs, field.Invalid(at.Child(name, "terminationGracePeriodSeconds"), *s, "must be greater than 0"))
		}
	}
	if p := c.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		if s := *p.TerminationGracePeriodSeconds; s <= 0 {
			errs = append(errs, field.Invalid(at.Child("readinessProbe", "terminationGracePeriodSeconds"), s, "must be greater than 0"))
		}
		errs = append(errs, field.Invalid(at.Child("readinessProbe", "terminationGracePeriodSeconds"), p.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
	}
	return errs
}

func validateProbe(p *corev1.Probe, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateHandler(handler{p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil, nil}, at)
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds}, {"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold}, {"failureThreshold", p.FailureThreshold},
	} {
		errs = append(errs, validate.NonNegative(int64(f.value), at.Child(f.name))...)
	}
	return errs
}

func validateLifecycle(l *corev1.Lifecycle, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	if l == nil {
		return nil
	}
	var errs field.ErrorList
	if h := l.PostStart; h != nil {
		errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep, spec.TerminationGracePeriodSeconds}, at.Child("postStart"))...)
	}
	if h := l.PreStop; h != nil {
		errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep, spec.TerminationGracePeriodSeconds}, at.Child("preStop"))...)
	}
	if l.StopSignal != nil {
		errs = append(errs, validateStopSignal(*l.StopSignal, spec.OS, at.Child("stopSignal"))...)
	}
	return errs
}

func validateStopSignal(s corev1.Signal, os *corev1.PodOS, at *field.Path) field.ErrorList {
	switch {
	case os == nil || os.Name == "":
		return field.ErrorList{field.Forbidden(at, "may not be set for containers with empty `spec.os.name`")}
	case os.Name == corev1.Windows:
		return validate.NotSupportedUnless(s, at, corev1.SIGTERM, corev1.SIGKILL)
	case !strings.HasPrefix(string(s), "SIG"):
		return field.ErrorList{field.Invalid(at, s, "must be the name of a signal")}
	}
	return nil
}

// handler is the action of a probe or hook; exactly one of its fields must be set.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
	grace *int64 // the longest allowed sleep, in seconds
}

func validateHandler(h handler, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	count := 0
	check := func(name string, set bool, validate func(at *field.Path) field.ErrorList) {
		if !set {
			return
		}
		if count++; count > 1 {
			errs = append(errs, field.Forbidden(at.Child(name), "may not specify more than 1 handler type"))
			return
		}
		errs = append(errs, validate(at.Child(name))...)
	}
	check("exec", h.exec != nil, func(at *field.Path) field.ErrorList {
		if len(h.exec.Command) == 0 {
			return field.ErrorList{field.Required(at.Child("command"), "")}
		}
		return nil
	})
	check("httpGet", h.http != nil, func(at *field.Path) field.ErrorList { return validateHTTPGet(h.http, at) })
	check("tcpSocket", h.tcp != nil, func(at *field.Path) field.ErrorList {
		return validate.PortNumOrName(h.tcp.Port, at.Child("port"))
	})
	check("grpc", h.grpc != nil, func(at *field.Path) field.ErrorList { return validate.Port(h.grpc.Port, at.Child("port")) })
	check("sleep", h.sleep != nil, func(at *field.Path) field.ErrorList {
		if s := h.sleep.Seconds; h.grace != nil && (s < 0 || s > *h.grace) {
			return field.ErrorList{field.Invalid(at, s, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *h.grace))}
		}
		return nil
	})
	if count == 0 {
		errs = append(errs, field.Required(at, "must specify a handler type"))
	}
	return errs
}

func validateHTTPGet(h *corev1.HTTPGetAction, at *field.Path) field.ErrorList {
	errs := validate.Required(at, "path", h.Path)
	errs = append(errs, validate.PortNumOrName(h.Port, at.Child("port"))...)
	errs = append(errs, validate.NotSupportedUnless(h.Scheme, at.Child("scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for _, header := range h.HTTPHeaders {
		errs = append(errs, validate.Invalids(at.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))...)
	}
	return errs
}
