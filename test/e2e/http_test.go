package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

var web = &http.Client{Timeout: 3 * time.Second}

func get(url string) (string, error) {
	resp, err := web.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(body), err
}

func post(url, body string) error {
	resp, err := web.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return nil
}
