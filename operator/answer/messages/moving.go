package messages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"example.org/mta/cluster/moving"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// Moving is the queue as mail moves between the nodes of a cluster, in the archives of exports; it implements
// moving.Mail.
type Moving struct{ *Moves }

// A batch has some messages and recipients at most, and no more content than this unless it has a single message.
const (
	batchMessages   = 200
	batchRecipients = 5000
	batchOctets     = 8 << 20
)

// batch is messages that are withheld, of one mark.
type batch struct {
	of         *Moves
	all        []*queue.Exported
	recipients int
	octets     int64
	mark       uint64
	node       string // the nodeid under which another relay may have it; "": it was not sent yet
}

func (b *batch) add(x *queue.Exported) {
	b.all = append(b.all, x)
	b.recipients, b.octets = b.recipients+len(x.Recipients), b.octets+x.Message.Size
}

// fits reports whether a message can be added.
func (b *batch) fits(x *queue.Exported, mark uint64) bool {
	return len(b.all) == 0 || mark == b.mark && len(b.all) < batchMessages &&
		b.recipients+len(x.Recipients) <= batchRecipients && b.octets+x.Message.Size <= batchOctets
}

// Leave implements moving.Mail.
func (m Moving) Leave(ctx context.Context, mark func(id string) uint64,
	each func(moving.Batch, uint64) error) (busy int, err error) {
	b := &batch{of: m.Moves}
	flush := func() error {
		full := b
		b = &batch{of: m.Moves}
		return each(full, full.mark)
	}
	left, err := m.Queue.Leave(queue.Selector{All: true},
		func(id envelope.ID) bool { return mark(id.String()) == moving.Skip },
		func(id envelope.ID) { m.Dispatcher.Cancel(id) }, // there is none of a dead node, nor is anything handed out
		func(x *queue.Exported) error {
			is, err := mark(x.Message.ID.String()), ctx.Err()
			if err == nil && !b.fits(x, is) {
				err = flush()
			}
			b.add(x)
			b.mark = is
			return err
		})
	switch {
	case err != nil:
		m.Stay(b.Parts())
	case len(b.all) > 0:
		err = flush()
	}
	return left.InDelivery + left.Ending, err
}

// Withhold implements moving.Mail.
func (m Moving) Withhold(parts []moving.Part) { each(parts, m.Queue.Withhold) }

// Stay implements moving.Mail.
func (m Moving) Stay(parts []moving.Part) {
	each(parts, func(id envelope.ID, recipients []int) int { m.Queue.Stay(id, recipients); return 0 })
}

// each calls use with some parts. Ids that can't be read are of no message.
func each(parts []moving.Part, use func(envelope.ID, []int) int) {
	for _, p := range parts {
		if id, err := envelope.ParseID(p.ID); err == nil {
			use(id, p.Recipients)
		}
	}
}

// Again implements moving.Mail.
func (m Moving) Again(name string, parts []moving.Part) (_ moving.Batch, later []moving.Part) {
	b := &batch{of: m.Moves, node: name}
	each(parts, func(id envelope.ID, recipients []int) int {
		x, err := m.Queue.Withheld(id, recipients)
		if err == nil && x != nil {
			err = m.readable(x)
		}
		switch {
		case err != nil:
			later = append(later, moving.Part{ID: id.String(), Recipients: recipients})
		case x != nil:
			b.add(x)
		}
		return 0
	})
	return b, later
}

// readable returns why the content of a message can't be read.
func (m Moving) readable(x *queue.Exported) error {
	content, err := m.Queue.Body(x.Message.ID)
	if err == nil {
		_, err = io.Copy(io.Discard, content)
		content.Close()
	}
	return err
}

// Parts implements moving.Batch.
func (b *batch) Parts() (all []moving.Part) {
	for _, x := range b.all {
		all = append(all, moving.Part{ID: x.Message.ID.String(), Recipients: x.Recipients})
	}
	return all
}

// Going implements moving.Batch.
func (b *batch) Going(to string) error {
	seen := map[string]bool{}
	for _, x := range b.all {
		tenant := x.Message.Tenant
		if seen[tenant] {
			continue
		}
		seen[tenant] = true
		if err := (KeyStore{b.of.Queue}).notePlaces(toOthers(tenant), b.of.Now().Add(importKnown), to); err != nil {
			return fmt.Errorf("noting where mail goes: %w", err)
		}
	}
	return nil
}

// Write implements moving.Batch.
func (b *batch) Write(w io.Writer) error {
	out := b.of.archive(w, b.node)
	for _, x := range b.all {
		var later error
		err := b.of.addTo(out, x, func(err error) {
			if b.node != "" { // the other node would not be asked after it
				later = err
				return
			}
			b.of.Log.Warn("a message stays in the queue of this node", "id", x.Message.ID, "error", err)
		})
		if err = cmp.Or(err, later); err != nil {
			return err
		}
	}
	return out.Close(exported.Summary{})
}

// archive begins one of this relay, under the nodeid that it has unless another one is given.
func (m *Moves) archive(w io.Writer, node string) *exported.Writer {
	cfg := m.Policy().Config
	return exported.NewWriter(w, exported.Summary{Node: cmp.Or(node, cfg.NodeID), Hostname: cfg.Hostname,
		Program: m.Version, At: m.Now().UTC()})
}

// addTo writes a message; one that can't be read is left out.
func (m *Moves) addTo(out *exported.Writer, x *queue.Exported, leftOut func(error)) error {
	written, err := out.Add(exportedOf(x), func() (io.ReadCloser, error) { return m.Queue.Body(x.Message.ID) })
	switch {
	case err == nil, written:
		return err
	case errors.Is(err, queue.ErrUnknown): // it has left meanwhile
		return nil
	case errors.Is(err, queue.ErrDamaged), errors.Is(err, exported.ErrTooLarge):
		leftOut(err)
		return nil
	}
	return fmt.Errorf("message %s: %w", x.Message.ID, err)
}

// mostAs is how many ids of a message elsewhere are noted, the latest: each time that some of its recipients move, it
// has another one.
const mostAs = 50

// Moved implements moving.Mail.
func (m Moving) Moved(taken []moving.Taken) error {
	c := api.RemoveMoved{Receipt: make([]api.MovedMessage, len(taken))}
	for i, t := range taken {
		c.Receipt[i] = api.MovedMessage{Node: m.Policy().Config.NodeID, ID: t.ID, Recipients: t.Recipients, To: t.To,
			As: t.As[max(0, len(t.As)-mostAs):]}
	}
	err := c.Check()
	if err == nil {
		_, err = m.RemoveMoved(context.Background(), c)
	}
	return err
}

// Keys implements moving.Mail.
func (m Moving) Keys(w io.Writer) error {
	out := m.archive(w, "")
	if err := m.exportKeys(out, ""); err != nil {
		return err
	}
	return out.Close(exported.Summary{})
}

// Requested implements moving.Mail.
func (m Moving) Requested() int { return int(m.Queue.Stats().IdempotencyKeys) }

// turn waits for the end of another import, but not for long: the other node asks again.
func (m Moving) turn(ctx context.Context) error {
	for end := m.Now().Add(20 * time.Second); !m.importing.TryLock(); {
		if m.Now().After(end) {
			return errors.New("another import is under way")
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Take implements moving.Mail.
func (m Moving) Take(ctx context.Context, from string, archive io.Reader,
	look bool) (taken []moving.Taken, declined []moving.Declined, err error) {
	if err := m.turn(ctx); err != nil {
		return nil, nil, err
	}
	defer m.importing.Unlock()
	if from == "" {
		return nil, nil, errors.New("the relay that sends mail has no nodeid")
	}
	done, err := m.take(ctx, archive, &importer{only: from, look: look})
	for _, r := range done.Receipt {
		taken = append(taken, moving.Taken{Part: moving.Part{ID: r.ID, Recipients: r.Recipients}, To: r.To, As: r.As})
	}
	for _, r := range done.Refused {
		declined = append(declined, moving.Declined{ID: r.ID, Why: r.Why})
	}
	return taken, declined, err
}
