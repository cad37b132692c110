package flow

import (
	"testing"
	"time"
)

func TestRetryAfterGrowsWithRefusals(t *testing.T) {
	var l retryAfter
	told := func(second int64, times int) (seconds int) {
		for range times {
			seconds = l.refuse(time.Unix(second, 0))
		}
		return seconds
	}
	for _, step := range []struct {
		second    int64
		times     int
		want      int
		otherwise string
	}{
		{1000, 50, 1, "the first second has nothing before it"},
		{1001, 1, 2, "three and more were refused in the second before"},
		{1002, 50, 2, "two seconds have not passed since it was doubled"},
		{1003, 10, 4, "51 in two seconds"},
		{1005, 10, 4, "not four seconds yet"},
		{1007, 100, 8, "20 in four"},
		{1015, 100, 16, "100 in eight"},
		{1031, 100, 32, "100 in sixteen"},
		{1063, 200, 32, "there is no more than that"},
		{1096, 1, 31, "the 200 are more than 32 seconds ago"},
		{1097, 1, 30, "one is fewer than one a second"},
		{5000, 1, 29, "one at a time, however long nothing was refused"},
	} {
		if got := told(step.second, step.times); got != step.want {
			t.Errorf("at %d: %d seconds, want %d: %s", step.second, got, step.want, step.otherwise)
		}
	}
	for second := int64(6000); second < 6080; second += 2 {
		told(second, 1)
	}
	if got := told(6080, 1); got != 1 {
		t.Errorf("few are refused for long: %d seconds", got)
	}
}
