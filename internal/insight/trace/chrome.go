package trace

import (
	"encoding/json"
	"io"
	"time"
)

// chromeEvent is an event of the trace event format, which chrome://tracing and ui.perfetto.dev
// read. Times are in microseconds.
type chromeEvent struct {
	Name     string         `json:"name"`
	Phase    string         `json:"ph"`
	Category string         `json:"cat,omitempty"`
	Time     int64          `json:"ts"`
	Duration *int64         `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	ID       int64          `json:"id,omitempty"`
	Binding  string         `json:"bp,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// Chrome writes the tree in the trace event format: a row for each object, and an arrow from each
// cause to its effect.
func (t *Tree) Chrome(out io.Writer) error {
	list := []chromeEvent{}
	rows := map[string]int{}
	row := map[int64]int{}
	at := map[int64]time.Time{}
	micros := func(moment time.Time) int64 { return moment.Sub(t.Began).Microseconds() }
	t.walk(func(_ int, h *Hop) {
		name := singular(h.Resource) + "/" + h.Name
		thread, known := rows[h.Namespace+"/"+name]
		if !known {
			thread = len(rows) + 1
			rows[h.Namespace+"/"+name] = thread
			list = append(list, chromeEvent{Name: "thread_name", Phase: "M", Process: 1, Thread: thread, Args: map[string]any{"name": name}})
		}
		took := max(1, h.Took().Microseconds())
		list = append(list, chromeEvent{
			Name: h.What, Phase: "X", Category: string(h.Source), Time: micros(h.At) - took, Duration: &took, Process: 1, Thread: thread,
			Args: map[string]any{"maker": h.Maker, "actor": h.Actor, "revision": h.Revision, "because": h.Because, "inferred": h.Inferred, "request": h.Request, "writes": h.Times, "source": h.Source, "note": h.Note},
		})
		row[h.Revision], at[h.Revision] = thread, h.At
		for _, other := range h.Others {
			row[other], at[other] = thread, h.Last
		}
	})
	arrows := int64(0)
	t.walk(func(_ int, h *Hop) {
		for _, cause := range h.Because {
			if thread, ok := row[cause]; ok && h.Revision != 0 {
				arrows++
				list = append(list,
					chromeEvent{Name: "because", Phase: "s", Category: "cause", ID: arrows, Time: micros(at[cause]), Process: 1, Thread: thread},
					chromeEvent{Name: "because", Phase: "f", Binding: "e", Category: "cause", ID: arrows, Time: micros(h.At), Process: 1, Thread: row[h.Revision]})
			}
		}
	})
	e := json.NewEncoder(out)
	e.SetIndent("", " ")
	return e.Encode(map[string]any{"traceEvents": list, "displayTimeUnit": "ms"})
}
