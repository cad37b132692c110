package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The table of a page is between a line with the name of its file, and this one.
const tableEnds = "<!-- end of table -->\n"

func tableBegins(file string) string {
	return "<!-- table: written by make plots from measurements/" + file + " -->\n"
}

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

// Insert replaces the table in a page that was written from a file of measurements.
func (r *Run) Insert(page, file string) (string, error) {
	line := tableBegins(file)
	before, rest, begins := strings.Cut(page, line)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return "", fmt.Errorf("the page lacks the lines %q and %q", strings.TrimSpace(line), strings.TrimSpace(tableEnds))
	}
	return before + line + "\n" + r.Table() + "\n" + tableEnds + after, nil
}
