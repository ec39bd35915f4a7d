package accounting

import (
	"bytes"
	"context"
	"errors"
	"time"

	"example.org/mta/internal/envelope"
)

const (
	// tailSize is how much of the end of a log is read at a start.
	tailSize = 64 << 20
	// latestReceptions are enough to find the oldest message whose Reception a crash can have taken along:
	// Receptions are added in the order of acceptance, but for those of sessions that commit at the same time.
	latestReceptions = 50_000
	// receptionSlack is the longest time from a message's acceptance until its Reception is added.
	receptionSlack = 10 * time.Second
	// quietSlack is the same where the end of the log has no Reception to go by.
	quietSlack = 10 * time.Minute
)

// Receptions are those at the end of a log.
type Receptions struct {
	// From is an id before which each message has its Reception, or had it before its file was deleted.
	From envelope.ID

	known  map[envelope.ID]struct{}
	latest envelope.ID                   // the message of the last one in the log
	of     map[envelope.Address]struct{} // its recipients that have theirs
}

// Has reports whether all recipients of a message whose id is not before From have their Receptions. It is false for
// the latest message: a crash can have come between those of its recipients. HasOf knows about these.
func (r *Receptions) Has(id envelope.ID) bool {
	_, ok := r.known[id]
	return ok && id != r.latest
}

// HasOf reports whether a recipient of a message that Has is false for has its Reception.
func (r *Receptions) HasOf(id envelope.ID, recipient envelope.Address) bool {
	_, ok := r.of[recipient]
	return ok && id == r.latest
}

// LatestReceptions reads the end of the log in dir. A crash takes along the Receptions that were not written
// yet; who has the messages can find by this which those are. now is for a log without records.
func LatestReceptions(ctx context.Context, dir string, now time.Time) (*Receptions, error) {
	from, err := logDir(dir).Tail(tailSize)
	if err != nil {
		return nil, err
	}
	r := &Receptions{known: make(map[envelope.ID]struct{})}
	latest := make([]envelope.ID, 0, 1024) // a ring, once it is full
	// the last record, and the Receptions of the latest message, which stand together
	var last, group []byte
	n := 0
	note := func(_, _ Position, line []byte) error {
		last = append(last[:0], line...)
		id, ok := idOf(line)
		if !ok || !bytes.HasPrefix(line, []byte(`{"type":"Reception"`)) {
			return nil
		}
		r.known[id] = struct{}{}
		if id != r.latest {
			r.latest, group = id, group[:0]
		}
		group = append(append(group, line...), '\n')
		if len(latest) < latestReceptions {
			latest = append(latest, id)
		} else {
			latest[n%latestReceptions] = id
		}
		n++
		return nil
	}
	_, err = ReadFrom(ctx, dir, from, Position{}, note)
	for missing := (*MissingError)(nil); errors.As(err, &missing); {
		_, err = ReadFrom(ctx, dir, missing.To, Position{}, note)
	}
	r.of = recipientsOf(group)
	r.From = envelope.FirstID(now.Add(-quietSlack))
	if len(latest) > 0 {
		oldest := latest[0]
		for _, id := range latest {
			oldest = min(oldest, id)
		}
		r.From = envelope.FirstID(oldest.Time().Add(-receptionSlack))
	} else if rec, err := Parse(last); err == nil {
		r.From = envelope.FirstID(rec.Time.Add(-quietSlack))
	}
	return r, err
}

// recipientsOf reads the recipients of records.
func recipientsOf(lines []byte) map[envelope.Address]struct{} {
	all := make(map[envelope.Address]struct{})
	for line := range bytes.Lines(lines) {
		if r, err := Parse(bytes.TrimSuffix(line, []byte{'\n'})); err == nil {
			all[r.Recipient] = struct{}{}
		}
	}
	return all
}
