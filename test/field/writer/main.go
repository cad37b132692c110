// Command writer fills a table, one row a transaction, and remembers which of them the database has
// acknowledged. Its page /figures tells how that goes, and /check compares the table.
//
// A transaction with an unknown outcome is never repeated: the next one has a new number. So a row
// that is missing although it is acknowledged is lost data.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	workers = 4
	// pause bounds the load of one worker.
	pause   = 20 * time.Millisecond
	timeout = 5 * time.Second
)

// ledger is what the writer knows. Its lock guards all fields.
type ledger struct {
	sync.Mutex
	acknowledged [workers]map[int64]bool
	unknown      int // transactions with an unknown outcome
	last         time.Time
	longest      time.Duration // between two acknowledgements
}

// Figures is the answer of /figures.
type Figures struct {
	Acknowledged int     `json:"acknowledged"`
	Unknown      int     `json:"unknown"`
	Age          float64 `json:"age"`     // seconds since the last acknowledgement
	Longest      float64 `json:"longest"` // longest seconds without one since the last reset
}

// Check is the answer of /check.
type Check struct {
	Acknowledged int      `json:"acknowledged"` // when the check began
	Rows         int      `json:"rows"`
	Missing      int      `json:"missing"` // acknowledged, and not in the table
	Examples     []string `json:"examples,omitempty"`
}

func main() {
	l := &ledger{last: time.Now()}
	for w := range workers {
		l.acknowledged[w] = map[int64]bool{}
		go l.write(w)
	}
	http.HandleFunc("/figures", l.figures)
	http.HandleFunc("/check", l.check)
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":8080", nil))
	os.Exit(1)
}

// write adds rows until the process ends.
func (l *ledger) write(worker int) {
	var conn *pgx.Conn
	var warned bool
	for number := int64(1); ; time.Sleep(pause) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		var err error
		if conn == nil {
			conn, err = connect(ctx, "", func() { warned = true })
		}
		if err == nil {
			warned = false
			_, err = conn.Exec(ctx, "INSERT INTO entries (worker, number) VALUES ($1, $2)", worker, number)
			// The server warns if it commits without waiting for its replicas.
			l.record(worker, number, err == nil && !warned)
			number++
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), "worker", worker, err)
			if conn != nil {
				_ = conn.Close(ctx)
			}
			conn = nil
			time.Sleep(200 * time.Millisecond)
		}
		cancel()
	}
}

// connect opens a connection to the database of the environment, or to another host with it.
func connect(ctx context.Context, host string, warning func()) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(os.Getenv("DATABASE"))
	if err != nil {
		return nil, err
	}
	if host != "" {
		config.Host = host
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Severity == "WARNING" {
			warning()
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil || host != "" {
		return conn, err
	}
	_, err = conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS entries (worker int, number bigint, PRIMARY KEY (worker, number))")
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "23505" { // another worker was faster
		err = nil
	}
	if err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

func (l *ledger) record(worker int, number int64, acknowledged bool) {
	l.Lock()
	defer l.Unlock()
	if !acknowledged {
		l.unknown++
		return
	}
	l.acknowledged[worker][number] = true
	now := time.Now()
	l.longest, l.last = max(l.longest, now.Sub(l.last)), now
}

func (l *ledger) figures(w http.ResponseWriter, r *http.Request) {
	l.Lock()
	defer l.Unlock()
	f := Figures{Unknown: l.unknown, Age: time.Since(l.last).Seconds()}
	f.Longest = max(l.longest.Seconds(), f.Age)
	for _, numbers := range l.acknowledged {
		f.Acknowledged += len(numbers)
	}
	if r.URL.Query().Has("reset") {
		l.longest = 0
	}
	_ = json.NewEncoder(w).Encode(f)
}

// check looks for all acknowledged rows, in the database of the parameter host or in the primary.
func (l *ledger) check(w http.ResponseWriter, r *http.Request) {
	wanted := [workers]map[int64]bool{}
	c := Check{}
	l.Lock()
	for i, numbers := range l.acknowledged {
		wanted[i] = map[int64]bool{}
		for number := range numbers {
			wanted[i][number] = true
		}
		c.Acknowledged += len(numbers)
	}
	l.Unlock()
	if err := c.compare(r.Context(), r.URL.Query().Get("host"), wanted); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	_ = json.NewEncoder(w).Encode(c)
}

func (c *Check) compare(ctx context.Context, host string, wanted [workers]map[int64]bool) error {
	conn, err := connect(ctx, host, func() {})
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT worker, number FROM entries")
	if err != nil {
		return err
	}
	var worker int
	var number int64
	_, err = pgx.ForEachRow(rows, []any{&worker, &number}, func() error {
		if worker < 0 || worker >= workers {
			return errors.New("a row of worker " + strconv.Itoa(worker))
		}
		c.Rows++
		delete(wanted[worker], number)
		return nil
	})
	for worker, numbers := range wanted {
		c.Missing += len(numbers)
		for number := range numbers {
			if len(c.Examples) < 5 {
				c.Examples = append(c.Examples, fmt.Sprintf("worker %d: %d", worker, number))
			}
		}
	}
	return err
}
