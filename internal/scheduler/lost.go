package scheduler

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// tooSlow is how long a write is retried while the server answers that it timed out or is
// unavailable.
const tooSlow = time.Minute

// untilAnswered repeats a write until its outcome is known. Until then the decision stays reserved,
// because the write may have succeeded: releasing it could take the devices from a bound pod, or
// give them to a second one. The write itself must recognize the effect of an earlier attempt.
func untilAnswered(ctx context.Context, write func() error) error {
	began := time.Now()
	for {
		err := write()
		if !unanswered(err) || isStatus(err) && time.Since(began) > tooSlow {
			return err
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return err
		}
	}
}

// unanswered tells whether the outcome of a write is unknown: there was no answer, or an answer
// that leaves it open.
func unanswered(err error) bool {
	var anew decideAnew
	if err == nil || errors.As(err, &anew) {
		return false
	}
	return !isStatus(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
}

func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// decideAnew is the reason why a decision cannot be carried out. The pod is decided again.
type decideAnew string

func (e decideAnew) Error() string { return string(e) }
