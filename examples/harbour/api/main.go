// Api is the harbour's API: POST /arrivals {"ship": "..."} records an arrival, GET /arrivals lists
// them, newest first. It is stateless. The arrivals are in the store, which it finds by its
// Service's name.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"time"
)

type arrival struct {
	Ship string    `json:"ship"`
	At   time.Time `json:"at"`
	By   string    `json:"by"` // the pod that recorded it
}

var (
	storeURL = os.Getenv("STORE_URL")
	pod      = os.Getenv("POD_NAME")
	client   = &http.Client{Timeout: 5 * time.Second}
)

func record(w http.ResponseWriter, r *http.Request) {
	var a arrival
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&a); err != nil || a.Ship == "" || len(a.Ship) > 100 {
		http.Error(w, `wanted {"ship": "a name of 1 to 100 bytes"}`, http.StatusBadRequest)
		return
	}
	a.At, a.By = time.Now().UTC(), pod
	line, _ := json.Marshal(a)
	resp, err := client.Post(storeURL+"/append", "application/json", bytes.NewReader(line))
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			err = fmt.Errorf("the store answered %s", resp.Status)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(line)
}

func list(w http.ResponseWriter, _ *http.Request) {
	resp, err := client.Get(storeURL + "/lines")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	all := []arrival{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var a arrival
		if json.Unmarshal(lines.Bytes(), &a) == nil {
			all = append(all, a)
		}
	}
	slices.Reverse(all)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all)
}

func main() {
	http.HandleFunc("POST /arrivals", record)
	http.HandleFunc("GET /arrivals", list)
	http.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	log.Print("api: listening on :8080, store at ", storeURL)
	log.Fatal(http.ListenAndServe(":8080", nil))
}
