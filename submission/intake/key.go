package intake

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// keyField has the idempotency key of a message: one that was accepted with the same key before is not taken again.
// A client that lost the answer to its message sends it once more, and gets the same answer.
const keyField = "X-MTA-Idempotency-Key"

// readKey reads the message's key, and begins the sum that distinguishes it from another message with the same key.
func (m *Message) readKey() *reply.Reply {
	field, repeats := &m.content.header.own[ownKey], m.desk.cfg.Repeats
	if field.times == 0 || repeats == nil {
		return nil
	}
	if field.times > 1 {
		return badKey.Refusal("the field is there twice")
	}
	key, err := ParseKey(field.value)
	if err != nil {
		return badKey.Refusal(reply.Printable(err.Error()))
	}
	m.content.key, m.content.sum = key, repeats.Sum()
	m.sumEnvelope()
	return nil
}

// sumEnvelope adds what makes a message another one beside its text. That is for whom it was meant: a recipient can
// have been suppressed since it was sent the first time.
func (m *Message) sumEnvelope() {
	x := m.content
	all := slices.Clone(m.turnedAway)
	for i := range m.recipients {
		all = append(all, m.recipients[i].Address)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	x.sumText(string(m.Sender))
	x.sum.Write(binary.BigEndian.AppendUint32(nil, uint32(len(all))))
	for _, a := range all {
		x.sumText(string(a))
	}
	for i := range x.header.own {
		if i < ownKey {
			x.sumText(x.header.own[i].value)
		}
	}
	// Without these, the sum is that of earlier versions of this relay, whose keys are in the queue.
	for i := ownCampaign; i < len(x.header.own); i++ {
		if f := &x.header.own[i]; f.times > 0 {
			x.sumText(string(ownNames[i]))
			x.sumText(f.value)
		}
	}
	for i := range x.header.foreign {
		if f := &x.header.foreign[i]; f.times > 0 {
			x.sumText([...]string{"pool", "campaign", "envelope id"}[i])
			x.sumText(f.value)
		}
	}
	if len(x.header.meta.items) > 0 {
		x.sumText(metaField)
		x.sumText(x.meta)
	}
}

// sumText adds a text with its length.
func (x *content) sumText(s string) {
	x.sum.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s))))
	x.sum.Write([]byte(s))
}

// commitOnce makes a message with a key durable, unless it was accepted before. Then it returns the id of that time,
// and nothing is taken.
func (m *Message) commitOnce(ctx context.Context, out *envelope.Message) (again bool, _ *reply.Reply) {
	claim, outcome, err := m.desk.cfg.Repeats.Begin(ctx, m.account.tenant, m.content.key, m.content.sum)
	defer claim.Drop()
	switch {
	case err != nil:
		return false, m.storeTrouble("looking for an idempotency key", err)
	case outcome == Other:
		return false, keyOfAnother.Refusal()
	case outcome == UnderWay:
		return false, keyUnderWay.Refusal()
	case claim.Accepted(0) != 0:
		out.ID = claim.Accepted(0)
		return true, nil
	}
	keyed := &Keyed{
		Key: claim.Key, Request: claim.Request, Last: true,
		Until: KeptUntil(m.desk.cfg.Now(), released(out)),
	}
	_, refused := m.desk.commitBatch(ctx, []*Message{m}, &Batch{Messages: []*envelope.Message{out}, Keyed: keyed})
	return false, refused
}

// released is when the last recipient of a message is released, zero for at once.
func released(out *envelope.Message) time.Time {
	if out.Release.IsZero() {
		return out.Release
	}
	return out.Release.Add(out.Spread)
}
