package adopt

import "fmt"

// Verdict says what knarr makes of a flag.
type Verdict string

const (
	Taken      Verdict = "taken"      // it is in the file of settings
	Equivalent Verdict = "equivalent" // knarr does the same without it
	NoEffect   Verdict = "no effect"  // it tunes a part that knarr does not have
	Refused    Verdict = "refused"    // knarr cannot honour it
	Left       Verdict = "left out"   // refused, and the administrator goes on without it
)

// Row is one flag of the table.
type Row struct {
	Component, Flag, Value string
	Verdict                Verdict
	Note                   string
}

func (r Row) String() string {
	return fmt.Sprintf("%s --%s=%s: %s", r.Component, r.Flag, r.Value, r.Note)
}
