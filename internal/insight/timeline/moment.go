package timeline

import (
	"fmt"
	"strconv"
	"time"
)

// AtHeader asks an API server of knarr for objects as they were at a time. An answer from the
// history has the header too. Other API servers ignore it.
const AtHeader = "Knarr-At"

// ParseTime reads a time in the format of RFC 3339, or a duration back from now, such as 10m, 36h
// or 2d.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	ago, err := time.ParseDuration(text)
	if n := len(text); err != nil && n > 1 && text[n-1] == 'd' {
		var days float64
		if days, err = strconv.ParseFloat(text[:n-1], 64); err == nil {
			if !(days >= 0 && days < 1e5) {
				return time.Time{}, fmt.Errorf("%q is no time: 0 to 100000 days are allowed", text)
			}
			ago = time.Duration(days * float64(24*time.Hour))
		}
	}
	if err != nil || ago < 0 {
		return time.Time{}, fmt.Errorf("%q is no time: use a duration back from now, such as 10m or 2d, or a time, such as 2026-01-31T09:00:00Z", text)
	}
	return now.Add(-ago), nil
}
