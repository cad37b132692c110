package job

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIndexesAreWrittenAsRanges(t *testing.T) {
	for _, text := range []string{"", "0", "0,1", "0-2", "1,3-5,7", "0,1,3,4,6-8"} {
		if got := parseIndexes(text, 100).String(); got != text {
			t.Errorf("%q came back as %q", text, got)
		}
	}
	if got := parseIndexes("0-9", 5).String(); got != "0-4" {
		t.Errorf("indexes above the completions stay: %q", got)
	}
}

func TestThePauseDoublesUpToTenMinutes(t *testing.T) {
	now := time.Now()
	for failures, want := range map[int]time.Duration{0: 0, 1: 10 * time.Second, 2: 20 * time.Second, 6: 320 * time.Second, 7: 10 * time.Minute, 100: 10 * time.Minute} {
		if got := pause(failures, now, now); got != want {
			t.Errorf("after %d failures %v, want %v", failures, got, want)
		}
	}
}

func TestTheLastDueTimeIsFound(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, tt := range []struct {
		name, schedule, last, now, want string
		deadline                        int64
		missed                          bool
	}{
		{name: "none is due before the first time", schedule: "0 * * * *", last: "2026-01-01T10:00:00Z", now: "2026-01-01T10:59:00Z"},
		{name: "the next one is due at its time", schedule: "0 * * * *", last: "2026-01-01T10:00:00Z", now: "2026-01-01T11:00:00Z", want: "2026-01-01T11:00:00Z"},
		{name: "of several missed the last one", schedule: "0 * * * *", last: "2026-01-01T10:00:00Z", now: "2026-01-01T15:30:00Z", want: "2026-01-01T15:00:00Z"},
		{name: "of a year of minutes the last one", schedule: "* * * * *", last: "2025-01-01T10:00:00Z", now: "2026-01-01T15:30:30Z", want: "2026-01-01T15:30:00Z", missed: true},
		{name: "not those before the deadline", schedule: "0 * * * *", last: "2026-01-01T10:00:00Z", now: "2026-01-01T15:30:00Z", deadline: 60},
		{name: "rare ones too", schedule: "0 0 1 * *", last: "2025-01-01T00:00:00Z", now: "2026-01-15T15:30:30Z", want: "2026-01-01T00:00:00Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			schedule, err := cron.ParseStandard(tt.schedule)
			if err != nil {
				t.Fatal(err)
			}
			c := &batchv1.CronJob{Status: batchv1.CronJobStatus{LastScheduleTime: &metav1.Time{Time: at(tt.last)}}}
			if tt.deadline > 0 {
				c.Spec.StartingDeadlineSeconds = &tt.deadline
			}
			due, missed := lastDue(c, schedule, at(tt.now))
			var want time.Time
			if tt.want != "" {
				want = at(tt.want)
			}
			if !due.Equal(want) || missed != tt.missed {
				t.Errorf("got %v, %v; want %v, %v", due, missed, want, tt.missed)
			}
		})
	}
}
