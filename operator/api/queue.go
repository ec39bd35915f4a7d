package api

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/legible"
)

func (s *Server) content(w http.ResponseWriter, r *http.Request, _ None) error {
	content, err := s.config.Queue.Content(r.Context(), nameIn(r))
	if err != nil {
		return err
	}
	defer content.Close()
	from := bufio.NewReader(content)
	if _, err := from.Peek(1); err != nil && err != io.EOF {
		return fmt.Errorf("reading the content of message %s: %w", nameIn(r), err)
	}
	w.Header().Set("Content-Type", "message/rfc822")
	if _, err := io.Copy(w, from); err != nil {
		// The client must not take a part for the whole: the connection breaks.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// Check refuses a change that can't be meant.
func (c *Change) Check() error {
	switch {
	case !slices.Contains(Actions, c.Action):
		return Invalid("", "action: want %s, not %q", join(Actions), c.Action)
	case c.Filter.Empty() && !c.All:
		return Invalid("to mean the whole queue, say so: all", "%s: no message is named and no filter given", c.Action)
	case (c.Scheduled || c.Now) && c.Action != Retry:
		return Invalid("", "scheduled and now are for the action %s", Retry)
	}
	return cmp.Or(c.Filter.Check(), c.checkReroute())
}

func (s *Server) log(w http.ResponseWriter, r *http.Request, q logQuery) error {
	if q.isPage() {
		page := s.config.Log.Newest
		if q.Order == Following {
			page = s.config.Log.Following
		}
		p, err := page(r.Context(), q.LogQuery, q.After, cmp.Or(q.Limit, DefaultLimit))
		if err != nil {
			return err
		}
		e := encoderFor(w, &p)
		e.SetEscapeHTML(false) // records have the octets that they have in the log
		return e.Encode(&p)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	out := &recordWriter{w: w}
	err := s.config.Log.Read(ctx, q.LogQuery, out.write, out.flush)
	var damaged *LogDamaged
	switch {
	case errors.As(err, &damaged):
		out.begin()
		w.Header().Set(damageTrailer, legible.Line(damaged.Text, maxDamage))
		return nil
	case err != nil && ctx.Err() != nil:
		// The client went, or the relay stops: this is how following ends.
	case err != nil && out.begun:
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	}
	out.begin()
	return nil
}

// recordWriter sends records, one to a line.
type recordWriter struct {
	w     http.ResponseWriter
	begun bool
}

func (o *recordWriter) begin() {
	if !o.begun {
		o.w.Header().Set("Content-Type", "application/x-ndjson")
		o.w.Header().Set("Trailer", damageTrailer)
		o.w.WriteHeader(http.StatusOK)
		o.begun = true
	}
}

func (o *recordWriter) write(record []byte) error {
	o.begin()
	if _, err := o.w.Write(record); err != nil {
		return err
	}
	_, err := o.w.Write([]byte{'\n'})
	return err
}

func (o *recordWriter) flush() {
	o.begin()
	// An error shows at the next write.
	_ = http.NewResponseController(o.w).Flush()
}

// ConfigFormat is the form of a configuration.
type ConfigFormat string

// The forms.
const (
	ConfigText ConfigFormat = "text" // as a file that loads
	ConfigJSON ConfigFormat = "json"
)

// ConfigFormats are all of them.
var ConfigFormats = []ConfigFormat{ConfigText, ConfigJSON}

type configQuery struct {
	Format ConfigFormat `q:"format" default:"text" help:"text: as a file that loads; json: settings under their names, blocks as lists of objects"`
}

func (s *Server) effective(w http.ResponseWriter, _ *http.Request, q configQuery) error {
	if q.Format == ConfigJSON {
		return writeJSON(w, new(s.config.Relay.ConfigObject()))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, s.config.Relay.Config())
	return nil
}

func (s *Server) reload(r *http.Request, in Intent) (Reload, error) {
	read := s.config.Relay.Reload
	if in.DryRun {
		read = s.config.Relay.PreviewReload
	}
	return read(r.Context())
}

// AddSummaries joins two parts of a summary, neither of which has left out rows. The second is the later.
func AddSummaries(a, b Summary) Summary {
	sum := b
	sum.Rows, sum.Total, sum.Other = slices.Clone(a.Rows), a.Total, a.Other
	at := make(map[string]int, len(sum.Rows))
	for i, row := range sum.Rows {
		at[row.Key] = i
	}
	for _, row := range b.Rows {
		if i, ok := at[row.Key]; ok {
			sum.Rows[i] = sum.Rows[i].Plus(row)
		} else {
			sum.Rows = append(sum.Rows, row)
		}
	}
	slices.SortFunc(sum.Rows, SummaryRow.compare)
	sum.Total = sum.Total.Plus(b.Total)
	switch {
	case sum.Other == nil:
		sum.Other = b.Other
	case b.Other != nil:
		other := sum.Other.Plus(*b.Other)
		sum.Other = &other
	}
	sum.Exact = a.Exact && b.Exact
	sum.Looked += a.Looked
	return sum
}

// AddChanged joins what a change did at two nodes.
func AddChanged(a, b Changed) Changed {
	a.Count += b.Count
	a.Recipients, a.Later = a.Recipients+b.Recipients, a.Later+b.Later
	a.Scheduled, a.Ended = a.Scheduled+b.Scheduled, a.Ended+b.Ended
	a.Obstacles = append(slices.Clone(a.Obstacles), b.Obstacles...)
	slices.SortStableFunc(a.Obstacles, func(x, y Obstacle) int { return cmp.Compare(y.Recipients, x.Recipients) })
	return a
}

// Cut leaves the limit largest rows, and counts the others in Other and More. 0 leaves all.
func (s *Summary) Cut(limit int) {
	if limit == 0 || len(s.Rows) <= limit {
		return
	}
	var other SummaryRow
	if s.Other != nil {
		other = *s.Other
	}
	for _, row := range s.Rows[limit:] {
		other = other.Plus(row)
	}
	other.Key = ""
	s.Other, s.More, s.Rows = &other, s.More+len(s.Rows)-limit, s.Rows[:limit]
}

// compare puts the largest row first.
func (r SummaryRow) compare(o SummaryRow) int {
	return cmp.Or(cmp.Compare(o.Total, r.Total), cmp.Compare(r.Key, o.Key))
}

// Plus gives the sum of two rows, with the first one's key.
func (r SummaryRow) Plus(o SummaryRow) SummaryRow {
	counts := make([]int, max(len(r.Counts), len(o.Counts)))
	states := make(map[State]int, len(r.States))
	for _, row := range []SummaryRow{r, o} {
		for i, n := range row.Counts {
			counts[i] += n
		}
		for state, n := range row.States {
			states[state] += n
		}
	}
	return SummaryRow{Key: r.Key, Total: r.Total + o.Total, Counts: counts, States: states, Error: r.Error + o.Error}
}

// ImportOptions is how exported messages are taken.
type ImportOptions struct {
	Hold    bool `q:"hold" help:"hold all of them"`
	Release bool `q:"release" help:"hold none of them, whatever the archive says"`
	DryRun  bool `q:"dry_run" short:"n" help:"only count"`
}

// Imported is what became of exported messages.
type Imported struct {
	Effect               // of recipients that were taken
	Messages   int       `json:"messages"`   // messages of which recipients were taken
	Recipients int       `json:"recipients"` // recipients that were taken
	There      int       `json:"there"`      // recipients that an import has taken before
	Refused    []Refused `json:"refused"`    // messages that can't be taken
	Keys       int       `json:"keys"`       // idempotency keys that the archive has
	// recipients that this relay has, durably: those taken, and those that were there; none in a dry run
	Receipt []MovedMessage `json:"receipt"`
	// Stopped is why the import has ended before the end of the archive; what is in Receipt is taken all the same.
	Stopped *Error `json:"stopped,omitempty"`
}

// Refused is an exported message that was not taken.
type Refused struct {
	Node       string `json:"node"`       // the nodeid of the relay that it comes from
	ID         string `json:"id"`         // its id there
	Recipients int    `json:"recipients"` // its recipients in the archive
	Why        string `json:"why"`        // why it was not taken
	Remedy     string `json:"remedy"`     // what to do about it
}

// MovedMessage is recipients of a message that another relay has.
type MovedMessage struct {
	Node string `json:"node"` // the nodeid of the relay that it comes from
	ID   string `json:"id"`   // its id there
	// their numbers among those that the message was accepted for, in ascending order
	Recipients []int  `json:"recipients"`
	To         string `json:"to,omitempty"` // the nodeid of the relay that has them, or the file
	// the ids of their messages there; several where they came with several imports
	As []string `json:"as,omitempty"`
}

// Where puts into words where the recipients are.
func (m *MovedMessage) Where() string {
	switch {
	case m.To == "":
		return "another relay or an archive"
	case len(m.As) == 0:
		return m.To
	}
	return m.To + " as " + strings.Join(m.As, ", ")
}

// RemoveMoved asks for the removal of what another relay has.
type RemoveMoved struct {
	Receipt []MovedMessage `json:"receipt"` // what it has
	Intent
}

// MovedRemoved is what was removed, because another relay has it.
type MovedRemoved struct {
	Effect
	Recipients int `json:"recipients"` // recipients that were removed
	// those of recipients that are on a connection: they are removed when the attempt ends
	Later int `json:"later,omitempty"`
	Gone  int `json:"gone"` // recipients that were not in the queue any more
}

// Moves is what the server asks for queued mail that moves between relays.
type Moves interface {
	// Export writes an archive of what fits. An error before its first octet is reported as one.
	Export(ctx context.Context, w io.Writer, f Filter) error
	// Import takes what is in an archive, each recipient once. What is in Imported is done, also beside an error.
	Import(ctx context.Context, r io.Reader, o ImportOptions) (Imported, error)
	// RemoveMoved removes exactly the recipients that are named.
	RemoveMoved(ctx context.Context, c RemoveMoved) (MovedRemoved, error)
}

// exportPatience is how long a client of an export may take nothing: it may have to wait for the relay that imports.
const exportPatience = time.Hour

// importTime is how long a client may take to send what it imports at once.
const importTime = 30 * time.Minute

func (s *Server) exportQueue(w http.ResponseWriter, r *http.Request, f Filter) error {
	return s.archive(w, exportPatience, "an export of queued mail broke off", func(w io.Writer) error {
		return s.config.Moves.Export(r.Context(), w, f)
	})
}

// importQueue answers the one request with an archive. It is on record as a change is.
func importQueue(op *operation, s *Server, w http.ResponseWriter, r *http.Request) error {
	var o ImportOptions
	refused := readQuery(r, Params(&o))
	if refused == nil && o.Hold && o.Release {
		refused = Invalid("", "hold and release exclude each other")
	}
	// The error is that of writers that have no deadline: a client within this process.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(importTime))
	var done Imported
	err := s.act(r, op, nil, Intent{DryRun: o.DryRun}, refused, func(r *http.Request, dry bool) (int, error) {
		var err error
		done, err = s.config.Moves.Import(r.Context(), r.Body, o)
		done.Count, done.DryRun = done.Recipients, dry
		return done.Count, err
	})
	if err != nil && len(done.Receipt) == 0 {
		return err
	}
	if err != nil {
		done.Stopped = asError(err)
	}
	return writeJSON(w, &done)
}

// maxWhere bounds what records have of where a message went, in octets.
const maxWhere = 2000

// Check refuses a receipt that no import has written.
func (c *RemoveMoved) Check() error {
	for _, m := range c.Receipt {
		n := len(m.Recipients)
		if n == 0 || !slices.IsSorted(m.Recipients) || m.Recipients[0] < 0 || m.Recipients[n-1] >= 1<<16 {
			return Invalid("use a receipt that 'mta queue import' has written",
				"message %s: its recipients must be numbers from 0 to 65535, in ascending order", m.ID)
		}
		if where := m.Where(); len(where) > maxWhere || hasControl(where) {
			return Invalid("use a receipt that 'mta queue import' has written",
				"message %s: where it went must be one line of at most %d octets", m.ID, maxWhere)
		}
	}
	return nil
}

// ImportQueue hands over an archive. What is in Imported is done, also beside an error.
func (c *Client) ImportQueue(ctx context.Context, archive io.Reader, o ImportOptions) (done Imported, err error) {
	answer, err := c.send(ctx, OpImport.method, OpImport.path, encode(Params(&o)), archive, OpImport.takes)
	if err != nil {
		return done, err
	}
	if err := readAnswer(answer, &done); err != nil || done.Stopped == nil {
		return done, err
	}
	return done, done.Stopped
}
