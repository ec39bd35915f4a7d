package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// logPage is the newest records of the accounting log that fit a filter.
type logPage struct {
	Path    string
	Inputs  []input
	Records []*accounting.Record
	Older   string // URL of the page with older ones; "" when this is the last
	Newest  string // URL of the newest; "" when these are they
	Follow  string // URL of the stream of what comes
	Export  string
	api.LogPage
}

// logFilter is what the page can ask for.
type logFilter struct {
	api.LogQuery `without:"since last follow"`
	Within       api.Age `q:"within" hint:"2h"`
}

const (
	logRecords = 100
	// countWithin is how far counts go back when nothing else is asked for.
	countWithin = api.Age(24 * time.Hour)
	// exportWithin is how far an export goes back when nothing else is asked for: the log can have 10 GiB.
	exportWithin = time.Hour
)

var logParams = paramsOf(new(logFilter), "after")

// logFilter reads a filter of the log.
func (r *request) logFilter() (f logFilter, err error) {
	err = r.read(&f)
	if f.Within > 0 {
		from := r.now
		if !f.Until.IsZero() {
			from = f.Until
		}
		f.Since = from.Add(-time.Duration(f.Within))
	}
	return f, err
}

func accountingLog(r *request) (any, error) {
	f, err := r.logFilter()
	if err != nil {
		return nil, err
	}
	page, err := r.relay.NewestRecords(r.ctx, f.LogQuery, r.get("after"), logRecords)
	if err != nil {
		return nil, err
	}
	p := logPage{Path: r.route.path, Inputs: inputs(&f, "until"), LogPage: page}
	for _, line := range page.Records {
		rec, err := accounting.Parse(line)
		if err != nil { // it hides no others
			p.Damaged = cmp.Or(p.Damaged, err.Error())
			continue
		}
		p.Records = append(p.Records, rec)
	}
	same := r.sameOf(logParams, "after")
	if page.Next != "" {
		p.Older = filterURL(same, "after", page.Next)
	}
	if !f.Until.IsZero() || r.get("after") != "" {
		p.Newest = cmp.Or(filterURL(r.sameOf(logParams, "after", "until")), "?")
	} else {
		p.Follow = filterURL(r.sameOf(logParams, "after", "until", "within"))
	}
	p.Export = filterURL(same)
	return p, nil
}

// countFilter is what the page of counts can ask for.
type countFilter struct {
	api.LogCountQuery `without:"since until"`
	Within            api.Age `q:"within" default:"1d"`
}

var logCounts = lister[countFilter, api.LogCounts, api.LogCount]{Listing: listing.LogCounts,
	ask: func(r *request, f countFilter) (api.LogCounts, error) {
		f.Since = r.now.Add(-time.Duration(cmp.Or(f.Within, countWithin)))
		return api.OpLogCounts.Call(r.ctx, r.relay, f.LogCountQuery)
	}}

// sameOf gives those of some parameters that are set, except a few.
func (r *request) sameOf(names []string, except ...string) (same []field) {
	for _, name := range names {
		for _, value := range r.values[name] {
			if value != "" && !slices.Contains(except, name) {
				same = append(same, field{name, value})
			}
		}
	}
	return same
}

// followLog sends records as they are written.
func (s *Server) followLog(w http.ResponseWriter, r *request) error {
	q, err := r.logFilter()
	if err != nil {
		return err
	}
	q.Since, q.Follow = r.now, true
	return s.stream(w, r, func(ctx context.Context, send func([]byte) error) error {
		return r.relay.Log(ctx, q.LogQuery, func(line []byte) error {
			rec, err := accounting.Parse(line)
			if err != nil {
				return nil // it is damaged, and hides no others
			}
			html, err := s.render(r, "log.html", "record", rec)
			if err != nil {
				return err
			}
			return send(html)
		})
	})
}

// exportLog sends the records that fit as a file, a line of JSON each.
func (s *Server) exportLog(w http.ResponseWriter, r *request) error {
	q, err := r.logFilter()
	if err != nil {
		return err
	}
	if q.ID == "" && q.Since.IsZero() { // the records of a message are found by an index
		q.Since = r.now.Add(-exportWithin)
		if !q.Until.IsZero() {
			q.Since = q.Until.Add(-exportWithin)
		}
	}
	out := s.attachment(w, "mta-log.ndjson")
	err = r.relay.Log(r.ctx, q.LogQuery, func(line []byte) error {
		_, err := out.Write(append(bytes.Clone(line), '\n'))
		return err
	})
	if damaged := (*api.LogDamaged)(nil); errors.As(err, &damaged) {
		err = nil // what can be read is there
	}
	return out.end(err)
}

// end ends a file: with an empty one when nothing was written. A part must not be taken for the whole.
func (a *attachment) end(err error) error {
	if err != nil && a.begun {
		panic(http.ErrAbortHandler)
	}
	if err == nil {
		_, err = a.Write(nil)
	}
	a.longAnswer.end()
	return err
}
