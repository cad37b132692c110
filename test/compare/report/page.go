package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The table of a page is between these two lines.
const (
	tableBegins = "<!-- table: written by make plots from measurements/last.json -->\n"
	tableEnds   = "<!-- end of table -->\n"
)

// Draw writes the plots as NAME.svg into the folder.
func (r *Run) Draw(dir string) error {
	for _, plot := range append([]Plot{Several}, Plots...) {
		if plot.Name == Several.Name && len(plot.rows(r)) == 0 {
			continue // a run without several servers
		}
		if err := os.WriteFile(filepath.Join(dir, plot.Name+".svg"), []byte(plot.SVG(r)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Insert replaces the table in a page.
func (r *Run) Insert(page string) (string, error) {
	before, rest, begins := strings.Cut(page, tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return "", fmt.Errorf("the page lacks the lines %q and %q", strings.TrimSpace(tableBegins), strings.TrimSpace(tableEnds))
	}
	return before + tableBegins + "\n" + r.Table() + "\n" + tableEnds + after, nil
}
