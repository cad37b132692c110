// Command eater takes memory until it is stopped.
package main

func main() {
	var eaten [][]byte
	for {
		piece := make([]byte, 1<<20)
		for i := range piece {
			piece[i] = 1
		}
		eaten = append(eaten, piece)
		if len(eaten) > 1<<12 {
			return // 4 GiB and nobody minds: that is a failure
		}
	}
}
