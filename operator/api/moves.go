package api

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"
)

// ImportOptions is how exported messages are taken.
type ImportOptions struct {
	Hold    bool `q:"hold" help:"hold all of them"`
	Release bool `q:"release" help:"hold none of them"`
	DryRun  bool `q:"dry_run" help:"only count"`
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
	Recipients []int `json:"recipients"`
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

func (s *Server) removeMoved(r *http.Request, c RemoveMoved) (MovedRemoved, error) {
	for _, m := range c.Receipt {
		if !slices.IsSorted(m.Recipients) || len(m.Recipients) == 0 || m.Recipients[0] < 0 || m.Recipients[len(m.Recipients)-1] >= 1<<16 {
			return MovedRemoved{}, Invalid("use a receipt that 'mta queue import' has written", "message %s: its recipients must be numbers from 0 to 65535, in ascending order", m.ID)
		}
	}
	done, err := s.config.Moves.RemoveMoved(r.Context(), c)
	done.Count = done.Recipients
	return done, err
}

// ExportQueue writes an archive of what fits to w.
func (c *Client) ExportQueue(ctx context.Context, w io.Writer, f Filter) error {
	return opExport.copy(ctx, c, w, "the archive", f)
}

// ImportQueue hands over an archive. What is in Imported is done, also beside an error.
func (c *Client) ImportQueue(ctx context.Context, archive io.Reader, o ImportOptions) (done Imported, err error) {
	answer, err := c.send(ctx, opImport.method, opImport.path, encode(Params(&o)), archive, opImport.takes)
	if err != nil {
		return done, err
	}
	if err := readAnswer(answer, &done); err != nil || done.Stopped == nil {
		return done, err
	}
	return done, done.Stopped
}

// RemoveMoved removes what another relay has.
func (c *Client) RemoveMoved(ctx context.Context, r RemoveMoved) (MovedRemoved, error) {
	return opRemoveMoved.call(ctx, c, r)
}
