package link

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"example.org/mta/internal/bubble"
)

// from is a connection that comes from an address.
type from struct {
	net.Conn
	address net.IP
}

func (f *from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: f.address, Port: 1} }

// Strangers who say nothing, at one address or at many, keep no member out, and fill no log.
func TestACrowdAtThePort(t *testing.T) {
	for name, test := range map[string]struct {
		at          func(i int) net.IP
		open, first int // that stay, and the one that goes first: one before all has another address
	}{
		"an address": {func(int) net.IP { return net.IPv4(192, 0, 2, 1) }, mostOfOne + 1, 0},
		"a network":  {func(i int) net.IP { return net.ParseIP(fmt.Sprintf("2001:db8::%x", i)) }, mostOfOne + 1, 0},
		"many":       {func(i int) net.IP { return net.IPv4(192, 0, 2, byte(i)) }, mostGuests, -1},
	} {
		bubble.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, _, ends := nodes(t, 2)
			l, gone := ends[1].Link, make(chan int, 100)
			enter := func(ip net.IP) net.Conn {
				here, there := net.Pipe()
				raw := &from{there, ip}
				g := newGuest(ctx, raw)
				l.enter(g)
				go l.guest(ctx, raw, g)
				return here
			}
			first := enter(net.IPv4(10, 0, 0, 3))
			defer first.Close()
			go func() { _, _ = first.Read(make([]byte, 1)); gone <- -1 }()
			for i := range 80 {
				here := enter(test.at(i))
				go func() { _, _ = here.Read(make([]byte, 1)); gone <- i }()
				synctest.Wait()
			}
			if len(gone) != 81-test.open {
				t.Errorf("%s: %d of 81 are gone, want all but %d", name, len(gone), test.open)
			}
			for want := test.first; len(gone) > 0; want++ {
				if i := <-gone; i != want {
					t.Errorf("%s: number %d goes before number %d", name, i, want)
				}
			}
			ends[2].cfg.Dial = func(context.Context, string) (net.Conn, error) { return enter(net.IPv4(10, 0, 0, 2)), nil }
			ends[2].Send(nudge(2, 1, 5))
			ends[1].received(t, nudge(2, 1, 5))
			if text := ends[1].log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "other handshakes, or 16 of its address") {
				t.Errorf("%s: it has logged\n%s", name, text)
			}
		})
	}
}
