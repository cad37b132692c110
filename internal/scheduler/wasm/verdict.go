package wasm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// plain reads an answer that is a status without further codes.
func (p plugin) plain(in *instance, result uint64) (*framework.Status, error) {
	return p.status(uint32(result), in)
}

// refusal reads an answer in filter. Nodes that are refused for the same reason share a status.
func (p plugin) refusal(in *instance, result uint64) (*framework.Status, error) {
	if in.refusal != nil && in.refusal.Code == framework.Code(uint32(result)) && in.refusedBy == in.call.reason {
		return in.refusal, nil
	}
	status, err := p.status(uint32(result), in)
	if status.Rejected() {
		in.refusal, in.refusedBy = status, in.call.reason
	}
	return status, err
}

// silent is for exports without a result.
func (p plugin) silent(*instance, uint64) (*framework.Status, error) { return nil, nil }

// status makes a status of a guest's code. Success, Error and refusals are always allowed.
func (p plugin) status(code uint32, in *instance, allowed ...framework.Code) (*framework.Status, error) {
	switch c := framework.Code(code); {
	case c == framework.Success:
		return nil, nil
	case c == framework.Error:
		return framework.Fail(errors.New(p.reason(in))), nil
	case c == framework.Unschedulable || c == framework.UnschedulableAndUnresolvable || c == framework.Pending || slices.Contains(allowed, c):
		return &framework.Status{Code: c, Reasons: []string{p.reason(in)}, Plugin: p.settings.Name}, nil
	}
	return nil, fmt.Errorf("it returned the status code %d, which %s does not have", code, in.call.point)
}

// reason is the guest's own reason with the plugin's name: users and `knarr why` see who refuses.
func (p plugin) reason(in *instance) string {
	if in.call.reason != "" {
		return in.call.reason + " (plugin " + p.settings.Name + ")"
	}
	return "refused by plugin " + p.settings.Name
}

// ask calls an export and reads its answer. A failure becomes a refusal, or nothing, by the failure
// policy.
func (p plugin) ask(c *cycle, q *call, read func(*instance, uint64) (*framework.Status, error)) *framework.Status {
	status, err := p.try(c, q, read)
	if err == nil {
		return status
	}
	if p.settings.IgnoreFailures {
		return nil
	}
	if q.point == score {
		return framework.Fail(err) // a score cannot be refused
	}
	return &framework.Status{Code: framework.Unschedulable, Reasons: []string{err.Error()}, Plugin: p.settings.Name, Err: err}
}

// try returns an error that is a Failure.
func (p plugin) try(c *cycle, q *call, read func(*instance, uint64) (*framework.Status, error)) (*framework.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := p.breaker.suspended(); err != nil {
		return nil, Failure{Plugin: p.settings.Name, Point: q.point.String(), Err: err}
	}
	if c.ended {
		return nil, Failure{Plugin: p.settings.Name, Point: q.point.String(), Err: errors.New("the cycle has ended")}
	}
	status, err := p.call(c, q, read)
	if err == nil {
		if p.breaker.succeeded() && p.settings.Recovered != nil {
			p.settings.Recovered()
		}
		return status, nil
	}
	if c.instance != nil {
		p.pool.drop(c)
	}
	f := Failure{Plugin: p.settings.Name, Point: q.point.String(), Err: err}
	if c.pod != nil {
		f.Namespace, f.Pod, f.UID = c.pod.Namespace, c.pod.Name, c.pod.UID
	}
	f.InRow, f.Suspended = p.breaker.failed(err)
	if p.settings.Failed != nil {
		p.settings.Failed(f)
	}
	return nil, f
}

// call calls an export in the cycle's instance. A cycle that has lost its instance begins again in
// another one: guests reset themselves in prefilter.
func (p plugin) call(c *cycle, q *call, read func(*instance, uint64) (*framework.Status, error)) (*framework.Status, error) {
	q.cycle = c
	if c.instance == nil {
		if err := p.pool.take(c); err != nil {
			return nil, err
		}
	}
	if !c.began {
		c.began = true
		if p.has[preFilter] && q.point != preFilter {
			if _, err := c.instance.run(&call{cycle: c, point: preFilter}); err != nil {
				return nil, err
			}
		}
	}
	result, err := c.instance.run(q)
	if err != nil {
		return nil, err
	}
	return read(c.instance, result)
}
