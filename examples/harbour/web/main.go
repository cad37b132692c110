// Web is the harbour's front end: it serves one page, and forwards /arrivals to the API.
package main

import (
	_ "embed"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

//go:embed page.html
var page []byte

func main() {
	api, err := url.Parse(os.Getenv("API_URL"))
	if err != nil || api.Host == "" {
		log.Fatalf("API_URL: %q is not a URL such as http://api", os.Getenv("API_URL"))
	}
	http.Handle("/arrivals", httputil.NewSingleHostReverseProxy(api))
	http.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	})
	http.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	log.Print("web: listening on :8080, API at ", api)
	log.Fatal(http.ListenAndServe(":8080", nil))
}
