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

// facts are what the plugin knows of a node.
type facts struct {
	disk   string
	points int // 0 to 100
}

// read finds the facts in a node.
func read(node object) facts {
	f := facts{disk: string(node.label(diskKey))}
	for _, digit := range node.label(pointsKey) {
		if digit < '0' || digit > '9' {
			return facts{disk: f.disk}
		}
		f.points = min(10*f.points+int(digit-'0'), 100)
	}
	return f
}

// refuse returns the reason why a pod that wants a disk cannot run on the node; empty if it can.
func refuse(disk []byte, node *facts) string {
	if len(disk) > 0 && string(disk) != node.disk {
		return "node(s) had another disk"
	}
	return ""
}

// main is not called: the host calls the functions in exports.go.
func main() {}
