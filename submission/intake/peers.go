package intake

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"example.org/mta/internal/envelope"
)

// Peers are the relays of a cluster, this one among them. One of them takes a request, whichever is asked.
type Peers interface {
	// Claim has this relay take the request with a key, unless another request has the key, and returns which has it
	// then. All relays see the note, which is short. An error says that this can't be known just now.
	Claim(ctx context.Context, key, note string) (Claimed, error)
}

// Claimed is the request that has a key.
type Claimed struct {
	Note string // that of its claim, or of its end; "" if it is not known
	// End notes for all relays how the request has ended and for how long that is kept, or that nothing of it was
	// taken. It does not block. Nil: it is not for this relay to take the request now.
	End     func(note string, keep time.Duration, taken bool)
	Settled bool   // the request has ended; one that was cut off half way goes on at the relay that has it
	By      string // that relay, in words
	Away    bool   // it does not answer
}

// Elsewhere is why this relay can't take a request: another relay of the cluster has it, or may have it. Its text is
// for clients.
type Elsewhere struct {
	Detail string
	Begun  bool // some of it was taken there, where the rest must be sent
}

func (e *Elsewhere) Error() string { return e.Detail }

// clusterSecret is what the sums are made with that must be the same at all relays: these share no secret. So who reads
// the cluster's database can guess keys, as he can read the answers there.
const clusterSecret = "the keys of a cluster"

// Join has requests taken by one relay of a cluster. It is called before all else.
func (b *Repeats) Join(p Peers, now func() time.Time) {
	b.peers, b.now, b.shared = p, now, derived(clusterSecret)
}

// noted is a request as all relays see it.
type noted struct {
	Key     []byte              `json:"key"`     // in the store of the relay that has it
	Request []byte              `json:"request"` // its sum, the same at all relays
	IDs     map[int]envelope.ID `json:"ids,omitempty"`
	Whole   bool                `json:"whole,omitempty"`
	Answer  []byte              `json:"answer,omitempty"`
}

func (n *noted) encode() string {
	text, err := json.Marshal(n)
	if err != nil {
		panic("intake: the note of a request: " + err.Error())
	}
	return string(text)
}

// agree claims a request that this relay would take, whose outcome here is given.
func (c *Claim) agree(ctx context.Context, tenant, key string, request *RequestSum, here Outcome) (Outcome, error) {
	sum, _ := request.at(c.book.shared)
	name := c.book.shared.names(tenant, key)[0]
	c.note = noted{Key: c.Key[:], Request: sum[:]}
	got, err := c.book.peers.Claim(ctx, hex.EncodeToString(name[:]), c.note.encode())
	if err != nil {
		return here, &Elsewhere{Detail: fmt.Sprintf(
			"the relays of this cluster can't find out which of them takes the request (%v): try again", err)}
	}
	var has noted
	if got.Note != "" {
		if err := json.Unmarshal([]byte(got.Note), &has); err != nil {
			return here, fmt.Errorf("the row of key %x in the cluster's database, of %s: %w", name, got.By, err)
		}
	}
	switch {
	case has.Request != nil && !bytes.Equal(has.Request, c.note.Request):
		return Other, nil
	case has.Whole:
		c.Stored = StoredRequest{IDs: has.IDs, Whole: true, Answer: has.Answer}
		return Replay, nil
	case got.End != nil:
		if c.end = got.End; len(has.IDs) > 0 { // this relay's store may have forgotten some
			c.Stored.add(&StoredRequest{IDs: has.IDs})
			here = Continue
		}
		return here, nil
	case got.Away:
		return here, &Elsewhere{Detail: got.By + ", which has the request, does not answer: try again"}
	case got.Settled:
		return here, &Elsewhere{Begun: true, Detail: got.By + " has accepted some messages of the request: send it " +
			"there again, and it accepts the rest"}
	}
	return UnderWay, nil
}

// Settled returns how a request of this relay has ended by the note of its claim, after a crash, and for how long that
// is kept; false if nothing of it was taken. It uses no peers.
func (b *Repeats) Settled(note string) (end string, keep time.Duration, taken bool) {
	var n noted
	if json.Unmarshal([]byte(note), &n) != nil || len(n.Key) != len(RequestKey{}) {
		return note, kept, true // somebody has changed it: nobody takes the request
	}
	b.mu.Lock()
	_, again := b.underWay[RequestKey(n.Key)]
	b.mu.Unlock()
	if again { // it was sent again, and this relay decides
		return note, kept, true
	}
	return b.settled(n, StoredRequest{})
}

// settled returns how a request has ended by the store, with what other relays had of it before their keys were moved.
// While the store can't be read, this relay decides about it.
func (b *Repeats) settled(n noted, before StoredRequest) (end string, keep time.Duration, taken bool) {
	s, known, err := b.store.Keyed(RequestKey(n.Key))
	if err == nil && !known && len(before.IDs) == 0 {
		return "", 0, false
	}
	keep = kept // also if the clock has jumped
	if err == nil {
		s.add(&before)
		n.IDs, n.Whole, n.Answer = s.IDs, s.Whole, s.Answer
		keep = max(kept, s.Until.Sub(b.now()))
	}
	return n.encode(), keep, true
}
