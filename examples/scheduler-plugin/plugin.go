// Command scheduler-plugin is a scheduling plugin in WebAssembly, without libraries. Build it with
// GOOS=wasip1 GOARCH=wasm and -buildmode=c-shared. docs/guides/scheduler-plugins.md explains it.
//
// A pod with the annotation example.com/disk only runs on nodes with a label of the same name and
// value. Among these, the node with the highest number in the label example.com/points is the best.
package main

const (
	diskKey   = "example.com/disk"
	pointsKey = "example.com/points"
)

// refuse returns the reason why the pod cannot run on the node; empty if it can.
func refuse(pod, node object) string {
	disk := pod.annotation(diskKey)
	if len(disk) > 0 && string(node.label(diskKey)) != string(disk) {
		return "node(s) had another disk"
	}
	return ""
}

// points scores a node with its label, from 0 to 100.
func points(node object) int {
	n := 0
	for _, digit := range node.label(pointsKey) {
		if digit < '0' || digit > '9' {
			return 0
		}
		n = min(10*n+int(digit-'0'), 100)
	}
	return n
}

// main is not called: the host calls the functions in exports.go.
func main() {}
