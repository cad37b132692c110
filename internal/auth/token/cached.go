package token

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// cached counts tokens under the names of upstream's token cache. knarr only remembers that a
// signature is valid. The validity of the token and its user are looked up on each request.
type cached struct {
	hits, misses, good, bad prometheus.Counter
	hitSeconds, missSeconds prometheus.Observer
	running                 prometheus.Gauge
	collectors              []prometheus.Collector
}

func newCached() cached {
	const name = "authentication_token_cache_"
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name + "request_total", Help: "Tokens whose signature was known to be good (hit) or not."}, []string{"status"})
	fetches := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name + "fetch_total", Help: "Signatures that were verified."}, []string{"status"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name + "request_duration_seconds", Help: "Time to know that a signature is good."}, []string{"status"})
	running := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name + "active_fetch_count", Help: "Signatures that are being verified."}, []string{"status"})
	return cached{
		hits: requests.WithLabelValues("hit"), misses: requests.WithLabelValues("miss"),
		good: fetches.WithLabelValues("ok"), bad: fetches.WithLabelValues("error"),
		hitSeconds: seconds.WithLabelValues("hit"), missSeconds: seconds.WithLabelValues("miss"), running: running.WithLabelValues("in_flight"),
		collectors: []prometheus.Collector{requests, fetches, seconds, running},
	}
}

// hit counts a remembered signature. Its time is far below the first bucket, and not worth reading
// a clock.
func (c *cached) hit() {
	c.hits.Inc()
	c.hitSeconds.Observe(0)
}

// verify measures the verification of a token and counts its result. A token of another issuer does
// not count.
func (c *cached) verify(verify func() (*claims, error)) (*claims, error) {
	c.running.Inc()
	defer c.running.Dec()
	since := time.Now()
	found, err := verify()
	switch {
	case found != nil:
		c.good.Inc()
	case errors.Is(err, errSignature):
		c.bad.Inc()
	default:
		return found, err
	}
	c.misses.Inc()
	c.missSeconds.Observe(time.Since(since).Seconds())
	return found, err
}
