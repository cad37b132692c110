package scheduler

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// tooSlow is how long a write is tried that a server is there for, but not done with in time.
const tooSlow = time.Minute

// untilAnswered tries a write again while nobody knows whether it was made. What was decided stays reserved meanwhile: it may be true already, and a pod that
// is bound would lose its devices, or another one get them too. The write has to find out what an earlier attempt has done.
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

// unanswered: no answer came, or one that does not say whether the request has been, or will be, carried out.
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

// decideAnew says why a decision can not be carried out any more.
type decideAnew string

func (e decideAnew) Error() string { return string(e) }
