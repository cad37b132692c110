package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// answeredError is an answer of a server that is no success.
type answeredError struct {
	status int
	text   string
}

func (e *answeredError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("the server answers %d", e.status)
	}
	return e.text
}

// StatusOf returns the HTTP status of an error that a server has answered, else 0.
func StatusOf(err error) int {
	var answered *answeredError
	if errors.As(err, &answered) {
		return answered.status
	}
	return 0
}

// Ask sends a request with a JSON body to a server, and parses the answer.
func Ask(ctx context.Context, c *http.Client, method, url string, body, into any) error {
	var from io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		from = strings.NewReader(string(data))
	}
	request, err := http.NewRequestWithContext(ctx, method, url, from)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		return &answeredError{answer.StatusCode, message(text)}
	}
	return decode(answer.Body, into)
}

// message returns the text of an error's answer, which may be a Status object.
func message(body []byte) string {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return status.Message
	}
	return strings.TrimSpace(string(body))
}

// decode parses an answer of another server, of limited size.
func decode(from io.Reader, into any) error {
	data, err := io.ReadAll(io.LimitReader(from, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(data) > maxAnswer {
		return errors.New("the answer is larger than 4 MiB")
	}
	return json.Unmarshal(data, into)
}
