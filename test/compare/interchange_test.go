package main

import (
	"errors"
	"strings"
	"testing"
)

func TestUnknownLayoutsAreRefusedBeforeTheStart(t *testing.T) {
	for names, want := range map[string]string{
		"":                      "reference their-parts our-parts our-controllers our-scheduler our-node store",
		"store,our-node":        "store our-node",
		"reference,their-party": "no layout is named \"their-party\"",
		"reference,":            "no layout is named \"\"",
	} {
		chosen, err := chosenLayouts(names)
		got := strings.Join(chosen, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", names, got, want)
		}
	}
}

func TestComplaintsWithoutAReferenceAreNoFailure(t *testing.T) {
	table, failed := renderResults([]result{
		{"our-node", "one", nil},
		{"our-node", "two", errors.New("broken")},
		{"our-node", "three", judge(complaints{"x": "x"}, nil)},
		{"our-node", "four", judge(complaints{"x": "x"}, complaints{})},
	})
	for _, line := range []string{"| one | yes |  |", "| two | **no** | broken |", "| three | not judged | there is no reference to compare with |", "| four | **no** | x |"} {
		if !strings.Contains(table, line) {
			t.Errorf("no %s in\n%s", line, table)
		}
	}
	if failed != 2 {
		t.Errorf("%d failed, want 2", failed)
	}
}
