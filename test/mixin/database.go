package mixin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

// database is Prometheus' store and engine.
type database struct {
	db     *tsdb.DB
	engine *promql.Engine
}

func open(dir string) (*database, error) {
	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, err
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{})})
	return &database{db, engine}, nil
}

func (d *database) close() error { return errors.Join(d.engine.Close(), d.db.Close()) }

// scraped stores a page of metrics as samples of a time. The labels of the target are added; where
// the page has the same label, that of the page stays (honorLabels).
func (d *database) scraped(ctx context.Context, page []byte, target map[string]string, at time.Time) (samples int, err error) {
	p, err := textparse.New(page, "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return 0, err
	}
	app := d.db.Appender(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, app.Rollback())
		}
	}()
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var own labels.Labels
		p.Labels(&own)
		b := labels.NewBuilder(own)
		for name, v := range target {
			if own.Get(name) == "" {
				b.Set(name, v)
			}
		}
		if _, err := app.Append(0, b.Labels(), at.UnixMilli(), value); err != nil {
			return 0, fmt.Errorf("%s: %w", own, err)
		}
		samples++
	}
	return samples, app.Commit()
}

// stored stores series of a job.
func (d *database) stored(ctx context.Context, job string, all []series, at time.Time) error {
	app := d.db.Appender(ctx)
	for _, s := range all {
		l := labels.FromStrings(append([]string{labels.MetricName, s.name, "job", job, "instance", job}, s.labels...)...)
		if _, err := app.Append(0, l, at.UnixMilli(), s.value); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
	return app.Commit()
}

// ask evaluates a query at a time. NaN and infinite values count as none.
func (d *database) ask(ctx context.Context, expression string, at time.Time) (promql.Vector, error) {
	q, err := d.engine.NewInstantQuery(ctx, d.db, nil, expression, at)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	v, err := q.Exec(ctx).Vector()
	if err != nil {
		return nil, err
	}
	var out promql.Vector
	for _, s := range v {
		if s.F-s.F == 0 {
			out = append(out, s)
		}
	}
	return out, nil
}

// record stores the result of a recording rule.
func (d *database) record(ctx context.Context, q *query, at time.Time) error {
	v, err := d.ask(ctx, q.expression, at)
	if err != nil {
		return err
	}
	app := d.db.Appender(ctx)
	for _, s := range v {
		b := labels.NewBuilder(s.Metric).Set(labels.MetricName, q.name)
		for _, l := range q.labels {
			b.Set(l[0], l[1])
		}
		if _, err := app.Append(0, b.Labels(), at.UnixMilli(), s.F); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
	return app.Commit()
}
