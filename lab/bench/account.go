package bench

import (
	"strconv"
	"time"
)

// Account says for each recipient of each message whether it came once. A recipient whose domain has no
// living host is left out, and so is a message of which nobody knows whether it was accepted, unless it
// comes twice.
type Account struct {
	Lost       int64 `json:"lost"`       // recipients without the message that was accepted for them
	Duplicated int64 `json:"duplicated"` // copies beyond the first that nothing excuses
	Ambiguous  int64 `json:"ambiguous"`  // copies beyond the first, of which the server has logged that it doesn't know
	Strange    int64 `json:"strange"`    // deliveries that nobody ordered
	Unsure     int64 `json:"unsure"`     // recipients of messages of which the server's answer was lost
	Later      int64 `json:"later"`      // answers of 4xx to the generator, which tried again

	firsts []arrival // in the order of their coming
}

// arrival is the first copy of a message at a recipient.
type arrival struct {
	message int
	at      time.Duration // since the load began
	alone   bool          // the message has one recipient
}

// Right reports whether each recipient had each message once, or as often as SMTP can't prevent.
func (a *Account) Right() bool { return a.Lost == 0 && a.Duplicated == 0 && a.Strange == 0 }

// Settle makes the account of a load whose mail g has taken. doubts are attempts that the server has
// logged as ambiguous, by the message's id; nil when the server can't be asked: then an earlier copy
// excuses a later one when its final reply was never sent.
func Settle(l *Load, g *Ground, doubts map[string]int) *Account {
	type box struct {
		message   int
		recipient string
	}
	type copies struct{ all, answered int }
	a := &Account{Later: l.Later.Load()}
	ordered := make(map[box]*copies, l.Messages)
	recipients := make([]int, l.Messages)
	for n := range l.Messages {
		to := l.To(n)
		recipients[n] = len(to)
		for _, rcpt := range to {
			ordered[box{n, rcpt}] = &copies{}
		}
	}
	deliveries := g.Taken.Deliveries()
	a.firsts = make([]arrival, 0, len(deliveries))
	for i := range deliveries {
		d := &deliveries[i]
		n, err := strconv.Atoi(d.ID)
		c := ordered[box{n, d.Recipient}]
		if err != nil || c == nil {
			a.Strange++
			continue
		}
		if c.all++; c.all == 1 {
			a.firsts = append(a.firsts, arrival{n, d.At.Sub(l.Began), recipients[n] == 1})
		}
		if d.Answered {
			c.answered++
		}
	}
	for b, c := range ordered {
		sure := l.Heard[b.message] > 0
		switch {
		case !sure:
			a.Unsure++
		case c.all == 0 && g.alive(b.recipient):
			a.Lost++
		}
		further := max(0, c.all-1)
		excuses := doubts[l.IDs[b.message]]
		if doubts == nil {
			excuses = c.all - c.answered
		}
		excused := min(further, excuses)
		a.Ambiguous += int64(excused)
		a.Duplicated += int64(further - excused)
	}
	t := g.Taken.Tally()
	a.Strange += t.Nameless + t.Untracked // of which the recorder has no more
	return a
}
