package refusal

import (
	"io"
	"os"
	"sync"
)

// capture keeps the beginning of standard input while kubectl reads it.
type capture struct {
	mu   sync.Mutex
	data []byte
}

// captureStdin puts a pipe in place of the process's standard input. kubectl reads os.Stdin itself.
// The copying goroutine ends with its input; the process does not wait for it. It returns nil, and
// changes nothing, if no pipe can be made.
func captureStdin() *capture {
	from := os.Stdin
	read, write, err := os.Pipe()
	if err != nil {
		return nil
	}
	c := &capture{}
	os.Stdin = read
	go func() {
		defer write.Close()
		_, _ = io.Copy(write, io.TeeReader(from, c)) // kubectl sees a shorter input
	}()
	return c
}

// Write implements io.Writer.
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = append(c.data, p[:min(len(p), maxSent-len(c.data))]...)
	return len(p), nil
}

func (c *capture) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.data
}
