// Command eater allocates memory until it is killed.
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
			return // 4 GiB without being killed: the test fails
		}
	}
}
