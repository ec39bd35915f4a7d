package link

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	clients "example.org/mta/internal/network"
)

// guest is one who has dialled, until it is known who that is.
type guest struct {
	client netip.Prefix
	ctx    context.Context // ends when he has to leave
	leave  context.CancelCauseFunc
	stays  func() bool // he has not had to; he need not any more
}

func newGuest(ctx context.Context, raw net.Conn) *guest {
	g := &guest{client: clients.Of(clients.Peer(raw.RemoteAddr()).Addr())}
	g.ctx, g.leave = context.WithCancelCause(ctx)
	g.stays = context.AfterFunc(g.ctx, func() { raw.Close() })
	return g
}

// errCrowded is why a handshake ends: members need milliseconds for one.
var errCrowded = fmt.Errorf("there are %d other handshakes, or %d of its address", mostGuests, mostOfOne)

// enter lets a guest in, for whom the oldest one of the client, or of all, leaves if there are too many.
func (l *Link) enter(g *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := func(o *guest) bool { return o.client == g.client }
	oldest, n := 0, 0
	for _, o := range l.guests {
		if same(o) {
			n++
		}
	}
	if n >= mostOfOne {
		oldest = slices.IndexFunc(l.guests, same)
	}
	if n >= mostOfOne || len(l.guests) >= mostGuests {
		l.guests[oldest].leave(errCrowded)
		l.guests = slices.Delete(l.guests, oldest, oldest+1)
	}
	l.guests = append(l.guests, g)
}

// known notes that it is known who a guest is, or that he has left.
func (l *Link) known(g *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guests = slices.DeleteFunc(l.guests, func(o *guest) bool { return o == g })
}
