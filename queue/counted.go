package queue

import (
	"encoding/binary"
	"errors"

	"example.org/mta/internal/envelope"
)

// Counted is recipients that an action would change, as they were counted: so that it can be carried out on these and
// on no others, however much comes into the queue meanwhile. It takes some octets for each message.
type Counted struct {
	n     int
	texts []byte // of each message: its id less the one before, the number of recipients, and these
	last  uint64
}

// Count returns what Change would change.
func (q *Queue) Count(sel Selector, a Action) (*Counted, error) {
	return q.countBy(sel, &changer{q: q, a: a, dryRun: true})
}

// CountReroute returns what Reroute would change.
func (q *Queue) CountReroute(sel Selector, to envelope.Detour) (*Counted, error) {
	return q.countBy(sel, &changer{q: q, a: reroute, to: to, dryRun: true})
}

func (q *Queue) countBy(sel Selector, c *changer) (*Counted, error) {
	c.counted = new(Counted)
	_, err := q.do(sel, c)
	return c.counted, err
}

// Len is the number of recipients.
func (c *Counted) Len() int { return c.n }

// IDs calls each with the ids of the messages, some at a time.
func (c *Counted) IDs(each func([]envelope.ID)) {
	var ids []envelope.ID
	c.each(func(id uint64, _ []uint16) {
		if ids = append(ids, envelope.ID(id)); len(ids) == atOnce {
			each(ids)
			ids = ids[:0]
		}
	})
	if len(ids) > 0 {
		each(ids)
	}
}

// Add counts recipients of a message, in ascending order: for who knows them without Count.
func (c *Counted) Add(id envelope.ID, recipients []int) {
	rcpts := make([]uint16, len(recipients))
	for i, r := range recipients {
		rcpts[i] = uint16(r)
	}
	c.add(uint64(id), rcpts)
}

func (c *Counted) add(id uint64, rcpts []uint16) {
	c.n += len(rcpts)
	c.texts = binary.AppendVarint(c.texts, int64(id-c.last))
	c.texts = binary.AppendUvarint(c.texts, uint64(len(rcpts)))
	for _, r := range rcpts {
		c.texts = binary.AppendUvarint(c.texts, uint64(r))
	}
	c.last = id
}

// each calls use with each message, in the order of add.
func (c *Counted) each(use func(id uint64, rcpts []uint16)) {
	var id uint64
	for text := c.texts; len(text) > 0; {
		step, n := binary.Varint(text)
		id += uint64(step)
		text = text[n:]
		count, n := binary.Uvarint(text)
		text = text[n:]
		rcpts := make([]uint16, count)
		for i := range rcpts {
			r, n := binary.Uvarint(text)
			rcpts[i], text = uint16(r), text[n:]
		}
		use(id, rcpts)
	}
}

// byCount selects what was counted and is still in the queue. Whether the action still makes a difference to it is
// looked at where it is changed.
func (c *changer) byCount(counted *Counted) {
	counted.each(func(id uint64, rcpts []uint16) {
		m, ok := c.q.LookUp(id)
		if !ok {
			return
		}
		m.Keep(rcpts)
		if len(m.Rcpts) > 0 {
			c.add(&m, nil)
		}
	})
}

// check refuses a selector that names nothing.
func (sel *Selector) check() error {
	if sel.Counted == nil && len(sel.IDs) == 0 && !sel.All && sel.Filter.IsZero() {
		return errors.New("queue: nothing is selected: give ids or a filter, or ask for all")
	}
	return nil
}
