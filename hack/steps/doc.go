// Command steps runs the steps of `make test`, several at a time, and shows how far each one is.
//
//	steps           all steps, as CI runs them
//	steps lint unit these steps, without the steps that they need
//
// # Words
//
// A step is one command of the plan (plan.go). Steps of one lane run one after the other, in the
// order of the plan; lanes run side by side. A step starts when the steps that it needs have
// passed.
//
// # Load
//
// Compilers and static checks would starve the clusters of e2e and conformance. They therefore run
// at a lower priority (nice, and the same value for their session's scheduling group): a cluster
// gets the processor whenever it wants it, and the compilers take the time during which clusters
// wait.
//
// # In and out
//
// A step reports its progress in lines of its output; reader.go lists them. All other output is its
// log, .cache/test/STEP.log. The last run's seconds are in .cache/test/seconds: they are the
// expectation of the next run. .cache/test/STEP.slow lists the 30 slowest tests.
//
// On a terminal one line is refreshed every second; otherwise a line is printed every 15 seconds.
// At the end each failed step's lines that matter are printed, then `N passed, M failed`, then each
// failure's cause.
package main
