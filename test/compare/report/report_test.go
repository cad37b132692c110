package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func madeUp() *Run {
	return &Run{Knarr: "v1", Upstream: "v2", Machine: "2 processors", Scale: 1, Rows: []Row{
		{Key: "create", What: "create <64> & more", Unit: "/s", Budget: 6000, More: true, Upstream: Figure{Value: 1000}, Knarr: Figure{Value: 6500, Note: "noted"}},
		{Key: "ready", What: "start", Unit: "s", Budget: 0.4, Upstream: Figure{Value: 2}, Knarr: Figure{Value: 0.5}},
		{Key: "watch", What: "events", Unit: "/s", Budget: 1e6, More: true, Upstream: Figure{Note: "not survived"}, Knarr: Figure{Value: 1234567}},
		{Key: "get", What: "get", Unit: "/s", Budget: 15000, More: true},
		{Key: "relist", What: "peak", Unit: "×", Budget: 2, Upstream: Figure{Value: 1.25}, Knarr: Figure{Value: 1.75}},
	}}
}

func TestTheTableHasRatioAndBudget(t *testing.T) {
	table := madeUp().Table()
	for _, want := range []string{
		"| create <64> & more | 1,000 /s | 6,500 /s | 6.5 × | 6,000 /s, held |",
		"| start | 2.00 s | 0.50 s | 1/4.0 | 0.40 s, **missed** |",
		"| events | — | 1,234,567 /s |  | 1,000,000 /s, held |",
		"| peak | 1.25 × | 1.75 × | 1.4 × | 2.00 ×, held |",
		"| get | — | — |  | 15,000 /s, **missed** |",
	} {
		if !strings.Contains(table, want+"\n") {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestARunIsReadAsItWasSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	if err := madeUp().Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil || !reflect.DeepEqual(got, madeUp()) {
		t.Errorf("%v, %+v", err, got)
	}
}

// TestAPlotShowsTheMeasurements reads the plot as XML: bars in proportion, values, and no row
// without a figure.
func TestAPlotShowsTheMeasurements(t *testing.T) {
	plot := Plot{"throughput", "A & B", []string{"create", "watch", "get", "absent"}}
	var texts, marks []string
	widths := map[string][]string{}
	decoder := xml.NewDecoder(strings.NewReader(plot.SVG(madeUp())))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case xml.CharData:
			texts = append(texts, string(x))
		case xml.StartElement:
			attributes := map[string]string{}
			for _, a := range x.Attr {
				attributes[a.Name.Local] = a.Value
			}
			if x.Name.Local == "line" {
				marks = append(marks, attributes["x1"]+","+attributes["y1"]+" "+attributes["x2"]+","+attributes["y2"])
			}
			if x.Name.Local == "rect" {
				widths[attributes["class"]] = append(widths[attributes["class"]], attributes["width"])
			}
		}
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{"A & B", "create <64> & more", "1,000 /s", "6,500 /s (6.5 ×)", "1,234,567 /s", "prefers-color-scheme:dark"} {
		if !strings.Contains(all, want) {
			t.Errorf("the plot lacks %q", want)
		}
	}
	// 510 pixels are the longest bar. Upstream's create is 1000 of 6500; its watch was not
	// measured.
	if want := map[string][]string{"page": {"759"}, "upstream": {"78", "1"}, "knarr": {"510", "510"}}; !reflect.DeepEqual(widths, want) {
		t.Errorf("bars are %v wide, want %v", widths, want)
	}
	// The legend's mark, then those of both rows: 6000 of 6500 and 1000000 of 1234567, across both
	// bars.
	if want := []string{"682,36 682,50", "561,79 561,112", "503,137 503,170"}; !reflect.DeepEqual(marks, want) {
		t.Errorf("marks at the budgets are %q, want %q", marks, want)
	}
}

func TestTheTableOfAPageIsReplaced(t *testing.T) {
	begins := tableBegins("a.json")
	page := "before\n" + begins + "old\n" + tableEnds + "after\n"
	got, err := madeUp().Insert(page, "a.json")
	if err != nil || !strings.HasPrefix(got, "before\n"+begins+"\n| what |") || !strings.HasSuffix(got, "\n"+tableEnds+"after\n") || strings.Contains(got, "old") {
		t.Errorf("%v: %s", err, got)
	}
	if _, err := madeUp().Insert("no table", "a.json"); err == nil {
		t.Error("a page without a place for the table is accepted")
	}
}

// TestTheDocumentationMatchesItsFigures fails when last.json has changed and `make plots` was
// not run.
func TestTheDocumentationMatchesItsFigures(t *testing.T) {
	const docs = "../../../docs/internals"
	run, err := Load(filepath.Join(docs, "measurements", "last.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, plot := range Plots {
		drawn, err := os.ReadFile(filepath.Join(docs, "measurements", plot.Name+".svg"))
		if err != nil || string(drawn) != plot.SVG(run) {
			t.Errorf("%s.svg is not drawn from last.json (%v): run make plots", plot.Name, err)
		}
	}
	several, err := Load(filepath.Join(docs, "measurements", "several-servers.json"))
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(filepath.Join(docs, "measurements", "several-servers.svg"))
	if err != nil || string(drawn) != Several.SVG(several) {
		t.Errorf("several-servers.svg is not drawn from several-servers.json (%v): run make plots", err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := run.Insert(string(page), "last.json"); err != nil || want != string(page) {
		t.Errorf("the table of performance.md is not made from last.json (%v): run make plots", err)
	}
}

// TestThePageOfWorkloadsMatchesItsFigures fails when scheduler.json has changed and `make plots`
// was not run.
func TestThePageOfWorkloadsMatchesItsFigures(t *testing.T) {
	const docs = "../../../docs/internals"
	run, err := Load(filepath.Join(docs, "measurements", "scheduler.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, plot := range Scheduler {
		if drawn, err := os.ReadFile(filepath.Join(docs, "measurements", plot.Name+".svg")); err != nil || string(drawn) != plot.SVG(run) {
			t.Errorf("%s.svg is not drawn from scheduler.json (%v): run make plots", plot.Name, err)
		}
	}
	page, err := os.ReadFile(filepath.Join(docs, "scheduler-workloads.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := run.Insert(string(page), "scheduler.json"); err != nil || want != string(page) {
		t.Errorf("the table of scheduler-workloads.md is not made from scheduler.json (%v): run make plots", err)
	}
}
