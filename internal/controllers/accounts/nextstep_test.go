package accounts

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestATokenCountsAsUnusedOnlyAfterAWholeTrackedPeriod(t *testing.T) {
	day := func(text string) time.Time {
		at, err := time.Parse(time.DateOnly, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	const period = 10 * 24 * time.Hour
	for name, tc := range map[string]struct {
		tracked, used, invalid, created string
		step                            step
		due                             string
	}{
		"uses are not noted":              {created: "2026-01-01", used: "2026-01-01", step: waiting},
		"uses are not noted any more":     {created: "2026-01-01", invalid: "2026-01-01", step: waiting},
		"never used":                      {tracked: "2026-03-01", created: "2026-01-01", step: marking, due: "2026-03-12"},
		"used after it began to be noted": {tracked: "2026-03-01", used: "2026-03-05", created: "2026-01-01", step: marking, due: "2026-03-16"},
		"used before it was noted anew":   {tracked: "2026-03-01", used: "2026-01-05", created: "2026-01-01", step: marking, due: "2026-03-12"},
		"young":                           {tracked: "2026-03-01", created: "2026-04-01", step: marking, due: "2026-04-11"},
		"invalid":                         {tracked: "2026-03-01", used: "2026-03-05", invalid: "2026-04-01", created: "2026-01-01", step: deletion, due: "2026-04-12"},
		"used of late, with an old mark put on again":      {tracked: "2026-03-01", used: "2026-05-05", invalid: "2026-04-01", created: "2026-01-01", step: deletion, due: "2026-05-16"},
		"marked, and since then uses are noted only again": {tracked: "2026-06-01", invalid: "2026-04-01", created: "2026-01-01", step: deletion, due: "2026-06-12"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(day(tc.created)), Labels: map[string]string{}}}
			for label, value := range map[string]string{labelLastUsed: tc.used, labelInvalidSince: tc.invalid} {
				if value != "" {
					secret.Labels[label] = value
				}
			}
			var tracked time.Time
			if tc.tracked != "" {
				tracked = day(tc.tracked)
			}
			step, due, err := nextStep(secret, tracked, period)
			if err != nil || step != tc.step || tc.due != "" && !due.Equal(day(tc.due)) {
				t.Errorf("step %d on %s (%v), want %d on %s", step, due, err, tc.step, tc.due)
			}
		})
	}
}
