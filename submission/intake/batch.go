package intake

import (
	"context"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Batches is a store that makes several messages durable together.
type Batches interface {
	// CommitBatch commits messages in as few writes as their size allows, and ends their drafts. It returns how
	// many were committed, from the first one on, before an error as Draft.Commit has it.
	CommitBatch(*Batch) (committed int, err error)
}

// Batch is the messages of one tenant that are committed together.
type Batch struct {
	Drafts   []Draft
	Messages []*envelope.Message // each with the content of the draft of the same index
	Keyed    *Keyed              // nil: the request has no key
}

// Keyed is what becomes durable with the messages of a request that has an idempotency key.
type Keyed struct {
	Key       [16]byte
	Request   [16]byte  // a sum of the request
	Positions []int     // of each message in the request, ascending; nil: 0, 1, 2...
	Last      bool      // the request has no more messages
	Answer    []byte    // with Last: what the same answer is made of again, beside the ids
	Until     time.Time // when the key is forgotten
}

// CommitAll makes messages of one client durable in as few groups as their size allows, once it is their turn, and
// returns those that were committed before the reply that says why the others were not. keyed is nil for a
// request without a key.
func (d *Desk) CommitAll(ctx context.Context, all []*Message, keyed *Keyed) ([]*envelope.Message, *reply.Reply) {
	b := &Batch{Keyed: keyed}
	for _, m := range all {
		if r := m.End(ctx); r != nil {
			return nil, r
		}
		b.Messages = append(b.Messages, m.message())
	}
	committed, refused := d.commitBatch(ctx, all, b)
	for i, m := range all[:committed] {
		m.accepted(b.Messages[i])
	}
	return b.Messages[:committed], refused
}

// commitBatch makes the messages of a batch durable in their turn, and returns how many were.
func (d *Desk) commitBatch(ctx context.Context, all []*Message, b *Batch) (committed int, _ *reply.Reply) {
	refused, err := inTurn(ctx, all, b.Messages, func() (err error) {
		for _, m := range all {
			b.Drafts = append(b.Drafts, m.content.draft)
			m.content.draft = nil
		}
		committed, err = d.cfg.Batches.CommitBatch(b)
		return err
	})
	switch {
	case refused != nil:
		all[0].client.shed++
		return 0, refused.reply()
	case err != nil:
		d.cfg.Log.Debug("committing messages", "committed", committed, "of", len(all), "err", err)
		return committed, StoreReply(err)
	}
	return committed, nil
}

// inTurn calls commit when it is the turn of the messages: one turn is enough for all, that of the least
// important.
func inTurn(ctx context.Context, all []*Message, out []*envelope.Message, commit func() error) (*Refused, error) {
	var admitted Admitted
	tier := uint8(0)
	for i, m := range all {
		tier = max(tier, out[i].Tier)
		switch a := m.turn(); {
		case admitted == nil:
			admitted = a
		case a != nil:
			a.Drop()
		}
	}
	if admitted == nil {
		return nil, commit()
	}
	return admitted.Commit(ctx, tier, commit)
}
