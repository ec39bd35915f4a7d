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
)

// logPage is the newest records of the accounting log that fit a filter.
type logPage struct {
	Filter   logFilter
	Records  []record
	Older    string // URL of the page with older ones; "" when this is the last
	Newest   string // URL of the newest; "" when these are they
	Follow   string // URL of the stream of what comes
	Export   string
	Damaged  string
	Looked   int64 // octets of the log
	Complete bool  // this is the last page
}

// logFilter is the filter as it was typed.
type logFilter struct {
	Type, ID, Sender, Recipient, Domain, Site, Tenant, Class, Within string
}

const (
	logRecords = 100
	// exportWithin is how far an export goes back when nothing else is asked for: the log can have 10 GiB.
	exportWithin = time.Hour
)

// logFilterParams are the filter, without the time.
var (
	logFilterParams = []string{"type", "id", "sender", "recipient", "domain", "site", "tenant", "class"}
	logParams       = append(slices.Clone(logFilterParams), "within", "until", "after")
)

// logQuery reads a filter of the log.
func (r *request) logQuery() (q api.LogQuery, f logFilter, err error) {
	f = logFilter{r.get("type"), r.get("id"), r.get("sender"), r.get("recipient"), r.get("domain"), r.get("site"), r.get("tenant"), r.get("class"), r.get("within")}
	q = api.LogQuery{
		Types: r.list("type"), ID: f.ID, Sender: f.Sender, Recipient: f.Recipient, Domain: f.Domain, Site: f.Site, Tenant: f.Tenant, Classes: r.list("class"),
	}
	within, err := r.age("within")
	if err != nil {
		return q, f, err
	}
	if text := r.get("until"); text != "" {
		if q.Until, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return q, f, api.Invalid("", "until: want a time such as 2026-11-22T15:04:05Z, not %q", text)
		}
	}
	if within > 0 {
		from := r.now
		if !q.Until.IsZero() {
			from = q.Until
		}
		q.Since = from.Add(-time.Duration(within))
	}
	return q, f, nil
}

func accountingLog(r *request) (any, error) {
	q, f, err := r.logQuery()
	if err != nil {
		return nil, err
	}
	p := logPage{Filter: f}
	page, err := r.relay.NewestRecords(r.ctx, q, r.get("after"), logRecords)
	if err != nil {
		return nil, err
	}
	p.Damaged, p.Looked, p.Complete = page.Damaged, page.Looked, page.Complete
	for _, line := range page.Records {
		rec, err := readRecord(line)
		if err != nil { // it hides no others
			p.Damaged = cmp.Or(p.Damaged, err.Error())
			continue
		}
		p.Records = append(p.Records, rec)
	}
	same := r.sameOf(append(slices.Clone(logFilterParams), "within", "until"))
	if page.Next != "" {
		p.Older = filterURL(same, "after", page.Next)
	}
	if !q.Until.IsZero() || r.get("after") != "" {
		p.Newest = cmp.Or(filterURL(r.sameOf(append(slices.Clone(logFilterParams), "within"))), "?")
	} else {
		p.Follow = filterURL(r.sameOf(logFilterParams))
	}
	p.Export = filterURL(same)
	return p, nil
}

// sameOf gives those of some parameters that are set.
func (r *request) sameOf(names []string) (same []field) {
	for _, name := range names {
		for _, value := range r.values[name] {
			if value != "" {
				same = append(same, field{name, value})
			}
		}
	}
	return same
}

// followLog sends records as they are written.
func (s *Server) followLog(w http.ResponseWriter, r *request) error {
	q, _, err := r.logQuery()
	if err != nil {
		return err
	}
	q.Since, q.Follow = r.now, true
	return s.stream(w, r, func(ctx context.Context, send func([]byte) error) error {
		return r.relay.Log(ctx, q, func(line []byte) error {
			rec, err := readRecord(line)
			if err != nil {
				return nil // it is damaged, and hides no others
			}
			html, err := s.render(r.role(), "log.html", "record", rec)
			if err != nil {
				return err
			}
			return send(html)
		})
	})
}

// exportLog sends the records that fit as a file, a line of JSON each.
func (s *Server) exportLog(w http.ResponseWriter, r *request) error {
	q, _, err := r.logQuery()
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
	err = r.relay.Log(r.ctx, q, func(line []byte) error {
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

// record is a record of the accounting log, as pages show it.
type record struct{ *accounting.Record }

// readRecord reads a line of the log.
func readRecord(line []byte) (record, error) {
	r, err := accounting.Parse(line)
	return record{r}, err
}

// Reply is the response, nil when the record has none.
func (r record) Reply() *api.Reply {
	p := &r.Response
	if p.Code == 0 && p.Text == "" {
		return nil
	}
	reply := &api.Reply{Code: p.Code, Text: p.Text, Command: p.Command, Local: p.Local}
	if p.Enhanced[0] != 0 {
		reply.Enhanced = p.Enhanced.String()
	}
	return reply
}
