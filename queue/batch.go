package queue

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
)

// Batch is the messages of one request, all of one tenant, or some of them: a long request can be committed in
// several batches, one after the other.
type Batch struct {
	Drafts   []*Draft
	Messages []*envelope.Message // one for each draft

	// Key makes the request one that is taken once; zero: it has none, and the fields below mean nothing.
	Key       Key
	Request   [16]byte // a sum of the request, to tell it from another with the same key
	Positions []int    // of the messages in the request, ascending; nil: 0, 1, 2, ...
	// Last is set with the last batch of a request, which may be without messages. Answer is what the caller needs,
	// beside the ids, to give the same answer again: up to 1 MiB.
	Last   bool
	Answer []byte
	Until  time.Time // when the key is forgotten
}

// CommitBatch accepts messages as Commit does, in order and in as few groups as their size allows; between
// groups, other tenants have their turns. The first committed of them are on stable storage, as after Commit;
// the others are not accepted, and err says why not. All drafts are over in any case.
//
// With a key, each group has a record of what has been accepted of the request, written and synced with the
// messages: see Keyed. The caller sees to it that no other batch with the same key is under way.
func (q *Queue) CommitBatch(b *Batch) (committed int, err error) {
	j := &joint{done: make(chan struct{}, 1)}
	ready := 0
	if err = q.beginBatch(b, j); err == nil {
		ready, err = q.prepareBatch(b, j)
	}
	if ready > 0 {
		j.left = ready
		if q.w.accept(b.Drafts[:ready]...) {
			<-j.done
		} else {
			j.err = ErrClosed
		}
		if j.err != nil {
			err = j.err
		}
	} else if err == nil && j.keying != nil && b.Last {
		err = q.answered(j.keying)
	}
	for i, d := range b.Drafts {
		if i < j.committed {
			d.finish()
			continue
		}
		d.undo()
		if i < ready {
			b.Messages[i].ID = 0
		}
	}
	return j.committed, err
}

// beginBatch checks a batch and begins its keyed records.
func (q *Queue) beginBatch(b *Batch, j *joint) (err error) {
	if err = b.check(); err == nil && b.Key != (Key{}) {
		j.keying, err = q.keyingOf(b)
	}
	return err
}

// check returns what a caller has done wrong. Messages of several tenants would be written in another order.
func (b *Batch) check() error {
	if len(b.Drafts) != len(b.Messages) {
		return fmt.Errorf("queue: a batch of %d drafts has %d messages", len(b.Drafts), len(b.Messages))
	}
	for _, m := range b.Messages {
		if m.Tenant != b.Messages[0].Tenant {
			return errors.New("queue: a batch has messages of several tenants")
		}
	}
	if b.Positions != nil && len(b.Positions) != len(b.Drafts) {
		return fmt.Errorf("queue: a batch of %d drafts has %d positions", len(b.Drafts), len(b.Positions))
	}
	before := -1
	for _, position := range b.Positions {
		if position <= before || position > math.MaxInt32 {
			return fmt.Errorf("queue: position %d follows %d in a batch", position, before)
		}
		before = position
	}
	if len(b.Answer) > maxAnswer {
		return fmt.Errorf("queue: an answer has %d octets: want up to %d", len(b.Answer), maxAnswer)
	}
	return nil
}

// position is that of a draft in the request.
func (b *Batch) position(i int) int {
	if b.Positions == nil {
		return i
	}
	return b.Positions[i]
}

// has reports whether a message of the request is in the batch.
func (b *Batch) has(position int) bool {
	if b.Positions == nil {
		return position < len(b.Drafts)
	}
	_, ok := slices.BinarySearch(b.Positions, position)
	return ok
}

// prepareBatch makes all that can be made without the writer, and reports for how many drafts it could.
func (q *Queue) prepareBatch(b *Batch, j *joint) (ready int, err error) {
	octets, large := int64(0), false
	for _, d := range b.Drafts {
		if d.file == nil {
			octets += d.size
		}
		large = large || d.file != nil
	}
	if err := q.room(octets); err != nil {
		return 0, err
	}
	for i, d := range b.Drafts {
		if d.err != nil {
			err = d.err
			break
		}
		if err = d.prepare(b.Messages[i]); err != nil {
			break
		}
		d.joint, d.position = j, b.position(i)
		ready++
	}
	if large && ready > 0 {
		if err := q.syncLarge(); err != nil {
			return 0, err
		}
	}
	if err != nil && j.keying != nil {
		j.keying.last = false
	}
	return ready, err
}

// joint is what the drafts of a batch share until each has its answer. All but done is the writer's.
type joint struct {
	left      int // drafts without an answer
	committed int // the first of the drafts
	err       error
	done      chan struct{}
	keying    *keying // nil: without a key
}

// answer takes the writer's answer for one draft, in their order. After an error none is committed any more.
func (j *joint) answer(err error) {
	if err == nil {
		j.committed++
	} else if j.err == nil {
		j.err = err
	}
	if j.left--; j.left == 0 {
		j.done <- struct{}{}
	}
}

// failed is the error that an earlier draft of the same batch has met.
func (d *Draft) failed() error {
	if d.joint == nil {
		return nil
	}
	return d.joint.err
}

// keying is the keyed records that the draft belongs to; nil: none.
func (d *Draft) keying() *keying {
	if d.joint == nil {
		return nil
	}
	return d.joint.keying
}

// answer hands on what became of the group that the draft was written with.
func (d *Draft) answer(err error) {
	if d.joint != nil {
		d.joint.answer(err)
	} else {
		d.done <- err
	}
}
