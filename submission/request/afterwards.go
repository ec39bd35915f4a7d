package request

import (
	"fmt"
	"time"
)

// Cancel is which messages of a tenant are to be cancelled.
type Cancel struct {
	Campaign, Tag  string
	IdempotencyKey string // that their request had
}

// DecodeCancel reads {"campaign": "spring"}, {"tag": "news"}, both, or {"idempotency_key": "order-17"}.
func DecodeCancel(body []byte) (c Cancel, _ Faults) {
	r, root := small(body)
	if root == nil {
		return c, r.faults
	}
	object(&r, root, &c, []field[Cancel]{
		{"campaign", func(r *reader, n *Node, c *Cancel) { c.Campaign = r.filled(n) }},
		{"tag", func(r *reader, n *Node, c *Cancel) { c.Tag = r.filled(n) }},
		{"idempotency_key", func(r *reader, n *Node, c *Cancel) { c.IdempotencyKey = r.filled(n) }},
	})
	switch {
	case len(r.faults) > 0:
	case c == Cancel{}:
		r.wrong(root, "name a campaign, a tag or an idempotency_key", "the request names nothing to cancel")
	case c.IdempotencyKey != "" && (c.Campaign != "" || c.Tag != ""):
		r.wrong(root, "name one of the two", "idempotency_key can't be combined with campaign or tag")
	}
	return c, r.faults
}

// DecodeMove reads {"send_at": "2026-11-22T18:00:00Z"}, at most maxHold from now.
func DecodeMove(body []byte, now time.Time, maxHold time.Duration) (at time.Time, _ Faults) {
	r, root := small(body)
	if root == nil {
		return at, r.faults
	}
	object(&r, root, &at, []field[time.Time]{{"send_at", func(r *reader, n *Node, at *time.Time) {
		if *at = r.time(n); !at.IsZero() {
			r.faults = append(r.faults, CheckMove(n.Pointer(), *at, now, maxHold)...)
		}
	}}})
	if at.IsZero() && len(r.faults) == 0 {
		r.wrong(root, "send it as 2026-11-22T18:00:00Z", "the field send_at is missing")
	}
	return at, r.faults
}

// CheckMove returns the fault of a time to which mail can't be moved: it is in the past, or more than maxHold from now.
func CheckMove(pointer string, at, now time.Time, maxHold time.Duration) Faults {
	switch last := now.Add(maxHold); {
	case at.Before(now):
		return Faults{{Pointer: pointer, Detail: at.Format(time.RFC3339) + " is in the past",
			Remedy: "send a later time; cancel the message if it shouldn't leave"}}
	case at.After(last):
		return Faults{{Pointer: pointer, Detail: fmt.Sprintf("mail can be scheduled %v ahead at most", maxHold),
			Remedy: "send a time before " + last.UTC().Format(time.RFC3339)}}
	}
	return nil
}

// small reads a body that is a small object. Without one the reader has the faults.
func small(body []byte) (reader, *Node) {
	root, faults := ParseTree(body, few)
	r := reader{faults: faults}
	if root != nil && root.Kind != Object {
		r.wrong(root, "send an object", "want %v, got %v", Object, root.Kind)
		return r, nil
	}
	return r, root
}

// filled reads a text that must not be empty.
func (r *reader) filled(n *Node) string {
	text := r.text(n)
	if text == "" && n.Kind == String {
		r.wrong(n, "leave it out, or name one", "the text is empty")
	}
	return text
}
