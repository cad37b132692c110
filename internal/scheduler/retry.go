package scheduler

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// answerTimeout is how long a write is retried while the server answers that it timed out or is
// unavailable.
const answerTimeout = time.Minute

// retryUntilAnswered repeats a write until its outcome is known. Until then the decision stays
// reserved, because the write may have succeeded: releasing it could take the devices from a bound
// pod, or give them to a second one. The write itself must recognize the effect of an earlier
// attempt.
func retryUntilAnswered(ctx context.Context, write func() error) error {
	began := time.Now()
	for {
		err := write()
		if !outcomeUnknown(err) || isStatus(err) && time.Since(began) > answerTimeout {
			return err
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return err
		}
	}
}

// outcomeUnknown reports whether the outcome of a write is unknown: there was no answer, or an
// answer that leaves it open.
func outcomeUnknown(err error) bool {
	var again decideAgain
	if err == nil || errors.As(err, &again) {
		return false
	}
	return !isStatus(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
}

func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// decideAgain is the reason why a decision cannot be carried out. The pod is decided again.
type decideAgain string

func (e decideAgain) Error() string { return string(e) }
