// Package taskpool shares the CPUs between thousands of responses that are written at a time.
//
// # Words
//
//   - A Task writes to one client. Wake gives it a turn: one call of its function, in one worker at
//     a time. An idle task costs no goroutine.
//   - A Pool runs the turns of tasks, in as many workers as there are CPUs.
//   - A Group is tasks that share a connection: they have their turns one after another.
//   - A Pace tells a busy task how long to rest before its next turn, so that there is more to
//     write then.
//   - Lanes bound how many large lists are sent at a time.
//
// In: calls of Wake. Out: calls of the tasks' functions, which write.
// Decision record: docs/adr/0024-watches-without-goroutines.md.
package taskpool
