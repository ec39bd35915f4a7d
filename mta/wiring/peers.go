package wiring

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/node"
	"example.org/mta/cluster/once"
	"example.org/mta/submission/intake"
)

// Agree has requests with a key taken by one member of a cluster. Without a cluster it does nothing.
func Agree(b *intake.Repeats, m *membership.Membership, now func() time.Time) {
	if m == nil {
		return
	}
	m.OnUnsettled(b.Settled)
	b.Join(peers{m, func() claims {
		if n := m.Node(); n != nil {
			return n
		}
		return nil
	}}, now)
}

// claims is what a node has for requests.
type claims interface {
	Claim(ctx context.Context, key, note string) (once.Decision, error)
	Accepted(d once.Decision, note string, keep time.Duration)
	Refused(once.Decision)
}

var _ claims = (*node.Node)(nil)

// peers are the members in the words of submission.
type peers struct {
	members interface {
		Own(number uint16) bool
		Away(number uint16) (why string)
	}
	node func() claims // nil: this relay takes no part
}

var errNoPart = errors.New("this relay takes no part in it at present")

// Claim implements intake.Peers.
func (p peers) Claim(ctx context.Context, key, note string) (c intake.Claimed, err error) {
	n := p.node()
	if n == nil {
		return c, errNoPart
	}
	d, err := n.Claim(ctx, key, note)
	if err != nil {
		return c, err
	}
	row := d.Row
	own := d.Outcome == once.Fresh || p.members.Own(row.Node)
	c = intake.Claimed{Note: row.Note, Settled: row.Done, By: fmt.Sprintf("node %d of this cluster", row.Node)}
	switch {
	case d.Outcome == once.Refuse:
		return c, errNoPart
	case own && d.Outcome != once.Running:
		c.End = func(note string, keep time.Duration, taken bool) {
			if taken {
				n.Accepted(d, note, keep)
			} else {
				n.Refused(d)
			}
		}
	case !own && row.Node != 0:
		c.Away = p.members.Away(row.Node) != ""
	}
	return c, nil
}
