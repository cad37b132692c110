package wasm

import (
	"testing"
	"time"
)

// A guest may ask for large answers again and again, with a limit of 0.
func TestAnswersThatDoNotFitCountForTheDeadline(t *testing.T) {
	for name, ask := range map[string]func(in *instance, stack []uint64){
		"bytes": func(in *instance, stack []uint64) { in.write(stack, 0, make([]byte, 100<<10)) },
		"text":  func(in *instance, stack []uint64) { in.writeText(stack, 0, string(make([]byte, 100<<10))) },
	} {
		t.Run(name, func(t *testing.T) {
			in := &instance{guest: &Guest{settings: Settings{Deadline: time.Second}}}
			in.call.cycle, in.call.began = &cycle{spent: time.Hour}, clock()
			defer func() {
				if err := recover(); err != errDeadline {
					t.Errorf("it ended with %v", err)
				}
			}()
			for range 100 {
				stack := []uint64{0, 0}
				if ask(in, stack); stack[0] != 100<<10 {
					t.Fatalf("the length is %d", stack[0])
				}
			}
		})
	}
}
