package spec

import corev1 "k8s.io/api/core/v1"

// Restarts reports whether a container that ended with the exit code must run again. Its own rules
// decide first, then its own policy, then the pod's (KEP-5307). Under the pod policy Always, init
// containers are only restarted on failure. Sidecars are always restarted.
func Restarts(pod *corev1.Pod, c *corev1.Container, init bool, exitCode int32) bool {
	for _, r := range c.RestartPolicyRules {
		if r.Action == corev1.ContainerRestartRuleActionRestart && r.ExitCodes != nil && matches(r.ExitCodes, exitCode) {
			return true
		}
	}
	policy := string(pod.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
	} else if init && policy == string(corev1.RestartPolicyAlways) {
		policy = string(corev1.RestartPolicyOnFailure)
	}
	switch policy {
	case string(corev1.RestartPolicyNever):
		return false
	case string(corev1.RestartPolicyOnFailure):
		return exitCode != 0
	}
	return true
}

// RestartsAll reports whether the end of the container with this exit code restarts all containers
// of the pod (KEP-5532).
func RestartsAll(c *corev1.Container, exitCode int32) bool {
	r := ruleFor(c, exitCode)
	return r != nil && r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
}

// ruleFor returns the first restart rule that matches the exit code, or nil.
func ruleFor(c *corev1.Container, exitCode int32) *corev1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		if r := &c.RestartPolicyRules[i]; r.ExitCodes != nil && matches(r.ExitCodes, exitCode) {
			return r
		}
	}
	return nil
}

func matches(on *corev1.ContainerRestartRuleOnExitCodes, code int32) bool {
	in := false
	for _, v := range on.Values {
		in = in || v == code
	}
	return in == (on.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}
