// Command harbourmaster is a scheduler plugin in WebAssembly that is built once for each verdict.
package main

// main is not called: the host calls the functions in exports.go.
func main() {}
