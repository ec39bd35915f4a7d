package queue

import (
	"errors"
	"fmt"

	"example.org/mta/internal/envelope"
)

// Batch is the messages of one request, all of one tenant.
type Batch struct {
	Drafts   []*Draft
	Messages []*envelope.Message // one for each draft
}

// CommitBatch accepts messages as Commit does, in order and in as few groups as their size allows; between
// groups, other tenants have their turns. The first committed of them are on stable storage, as after Commit;
// the others are not accepted, and err says why not. All drafts are over in any case.
func (q *Queue) CommitBatch(b *Batch) (committed int, err error) {
	j := &joint{done: make(chan struct{}, 1)}
	ready := 0
	if err = b.check(); err == nil {
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
	return nil
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
		d.joint = j
		ready++
	}
	if large && ready > 0 {
		if err := q.syncLarge(); err != nil {
			return 0, err
		}
	}
	return ready, err
}

// joint is what the drafts of a batch share until each has its answer. All but done is the writer's.
type joint struct {
	left      int // drafts without an answer
	committed int // the first of the drafts
	err       error
	done      chan struct{}
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

// answer hands on what became of the group that the draft was written with.
func (d *Draft) answer(err error) {
	if d.joint != nil {
		d.joint.answer(err)
	} else {
		d.done <- err
	}
}
