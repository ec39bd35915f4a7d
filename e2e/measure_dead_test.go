package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"mta/internal/sink"
)

// silent accepts connections and says nothing on any.
func silent(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		var held []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				for _, c := range held {
					c.Close()
				}
				return
			}
			held = append(held, c)
		}
	}()
}

// unreachable answers no SYN: it listens with a backlog that is full.
func unreachable(t *testing.T, addr string) {
	t.Helper()
	at := netip.MustParseAddrPort(addr)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 16 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("a listener with a backlog of none takes 16 connections")
}

// TestMeasureOneDeadSiteAmongTen measures what the mail to nine sites loses when the tenth no
// longer answers. All replies come 20 ms late.
func TestMeasureOneDeadSiteAmongTen(t *testing.T) {
	const sites = 10
	deaths := []*struct {
		name string
		dead occupy
		rate map[string][]float64 // deliveries a second to the nine, by mailer
	}{
		{name: "all well"},
		{name: "the tenth accepts and is silent", dead: silent},
		{name: "the tenth can't be connected to", dead: unreachable},
	}
	mailers := []struct {
		name     string
		start    func(*testing.T, *ground) *mailer
		messages int
		fullOnly bool
	}{
		{name: "relay", start: func(t *testing.T, g *ground) *mailer { return relayMailer(t, g, "") }, messages: sized(40_000, 1000)},
		{name: "Postfix", start: postfixMailer, messages: sized(6000, 0), fullOnly: true},
	}
	for range sized(3, 1) {
		for _, m := range mailers {
			if m.fullOnly && !fullSize() {
				continue
			}
			for _, d := range deaths {
				t.Run(m.name+", "+d.name, func(t *testing.T) {
					g := newGround(t, sites, func(int) sink.Config { return sink.Config{Latency: 20 * time.Millisecond} }, func(i int) occupy {
						if i == sites-1 {
							return d.dead
						}
						return nil
					})
					w := m.start(t, g)
					l := &load{messages: m.messages, connections: 20, size: 2048,
						to: func(n int) []string { return []string{"user@" + g.sites[n%sites].domain} }}
					l.submit(t, w.addr)
					if d.rate == nil {
						d.rate = make(map[string][]float64)
					}
					d.rate[m.name] = append(d.rate[m.name], g.rateOfNine(t, l))
				})
			}
		}
	}
	if !fullSize() || t.Failed() {
		return
	}
	rows := [][]string{{"", "", "v all well", "messages/s to the other nine", "each run"}}
	for _, m := range mailers {
		for _, d := range deaths {
			rows = append(rows, []string{m.name, d.name, fmt.Sprintf("%.2f", median(d.rate[m.name])/median(deaths[0].rate[m.name])),
				fmt.Sprintf("%.0f", median(d.rate[m.name])), fmt.Sprintf("%.0f", d.rate[m.name])})
		}
	}
	table(t, "Ten sites, replies 20 ms late, of which one dies:", rows)
}

// rateOfNine waits until all mail for the first nine sites is there, and gives its rate. It fails
// the test for what came twice or is missing.
func (g *ground) rateOfNine(t *testing.T, l *load) float64 {
	t.Helper()
	last := g.sites[len(g.sites)-1]
	var nine []sink.Delivery
	want := l.messages - l.messages/len(g.sites)
	eventually(t, 2*time.Minute, func() error {
		nine = nine[:0]
		for _, d := range g.taken.Deliveries() {
			if d.Recipient != "user@"+last.domain {
				nine = append(nine, d)
			}
		}
		if len(nine) < want {
			return fmt.Errorf("%d of %d messages are with the nine sites", len(nine), want)
		}
		return nil
	})
	if tally := g.taken.Tally(); len(nine) != want || tally.Duplicates() != 0 || tally.Nameless != 0 {
		t.Errorf("%d messages are with the nine sites, want %d; %+v", len(nine), want, tally)
	}
	return float64(len(nine)) / nine[len(nine)-1].At.Sub(l.began).Seconds()
}
