// Command steps runs the steps of `make test`, several at a time, and shows the progress of each.
//
//	steps           all steps, as CI runs them
//	steps lint unit these steps, without the steps that they need
//
// # Words
//
// A step is one command of the plan (plan.go). Steps of one lane run one after the other, in the
// order of the plan. Lanes run concurrently. A step starts when the steps that it needs have
// passed.
//
// # Load
//
// Compilers and static checks would starve the clusters of e2e and conformance. They therefore run
// at a lower priority: nice, and the same value for the scheduling group of their session. A
// cluster gets the processor whenever it needs it, and the compilers use the time in which clusters
// wait.
//
// # In and out
//
// A step reports its progress in lines of its output; reader.go lists them. All other output is its
// log, .cache/test/STEP.log. The last run's durations are in .cache/test/seconds; they are the
// expectation for the next run. .cache/test/STEP.slow lists the 30 slowest tests.
//
// On a terminal one line is refreshed every second; otherwise a line is printed every 15 seconds.
// At the end come the relevant log lines of each failed step, then `N passed, M failed`, then the
// cause of each failure.
package main
