package e2e

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
)

// TestScaleInbound holds ten thousand connections that have said EHLO and then nothing, and has
// others bring mail meanwhile.
func TestScaleInbound(t *testing.T) {
	besideOthers(t, fullScale())
	n := scaled(t, "INBOUND", 10_000, 200)
	needFiles(t, 2*n+1000)
	g := farSites(t, 1, sink.Config{})
	crowd := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	r := newRelay(t, g.DNS, g.Port, fmt.Sprintf(`listener "crowd" {
  address                    = [%q]
  max_connections            = %[2]d
  max_connections_per_client = %[2]d
  command_timeout            = "1h"
}
`, crowd, n*4/3+1)) // of which one client has three quarters
	r.start(t)
	messages := 500
	if fullScale() {
		messages = 20_000
	}
	alone := g.send(t, r.addr, messages)
	before := r.memory(t, "VmRSS")
	idle, took := holdIdle(t, crowd, n)
	during := r.memory(t, "VmRSS")
	cpu, watch := r.cpu(t), 5*time.Second
	if !fullScale() {
		watch = 100 * time.Millisecond
	}
	<-time.After(watch)
	cpu = r.cpu(t) - cpu
	beside := g.send(t, r.addr, messages)
	stillOpen(t, idle)

	var f figures
	f.add(fmt.Sprintf("%s idle inbound connections opened in", count(n)), "", "%.1f s", took.Seconds())
	f.add("memory for them", "", "%.0f MB, %.1f KB each", during-before, (during-before)*1024/float64(n))
	f.add("CPU while nothing comes", "", "%.2f %% of a core", 100*cpu.Seconds()/watch.Seconds())
	f.add("accepted a second beside them", "", "%.0f, %.0f %% of the rate without them",
		beside, 100*beside/alone)
	f.add("connections that were kept", "all", "all")
	f.print(t, "Inbound connections:")
}

// holdIdle opens n connections that say EHLO, until the test's end.
func holdIdle(t *testing.T, addr string, n int) ([]net.Conn, time.Duration) {
	t.Helper()
	conns := make([]net.Conn, n)
	t.Cleanup(func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	})
	const dialers = 32
	errs := make(chan error, dialers)
	began := time.Now()
	for d := range dialers {
		go func() {
			var err error
			for i := d; i < n && err == nil; i += dialers {
				conns[i], err = greeted(addr)
			}
			errs <- err
		}()
	}
	for range dialers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return conns, time.Since(began)
}

// greeted is a connection on which EHLO was answered.
func greeted(addr string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err = io.WriteString(c, "EHLO crowd.example\r\n"); err == nil {
		err = readUntil(c, "250 ")
	}
	_ = c.SetDeadline(time.Time{})
	return c, err
}

// readUntil reads up to the line that begins with code and ends a reply.
func readUntil(c net.Conn, code string) error {
	var said strings.Builder
	for b := make([]byte, 1024); !(strings.Contains(said.String(), "\n"+code) && strings.HasSuffix(said.String(), "\n")); {
		n, err := c.Read(b)
		if err != nil {
			return fmt.Errorf("waiting for %s after %q: %w", code, said.String(), err)
		}
		said.Write(b[:n])
	}
	return nil
}

// stillOpen says NOOP on each.
func stillOpen(t *testing.T, conns []net.Conn) {
	t.Helper()
	b := make([]byte, 512)
	for i, c := range conns {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(c, "NOOP\r\n"); err != nil {
			t.Fatalf("connection %d of %d is gone: %v", i, len(conns), err)
		}
		if n, err := c.Read(b); err != nil || !strings.HasPrefix(string(b[:n]), "250") {
			t.Fatalf("connection %d of %d is gone: %q, %v", i, len(conns), b[:n], err)
		}
	}
}

// TestScaleOutbound delivers over five thousand connections at once, to sites that take seconds
// for each message.
func TestScaleOutbound(t *testing.T) {
	besideOthers(t, fullScale())
	n := scaled(t, "OUTBOUND", 5000, 100)
	sites := max(n/100, 2) // a hundred connections each
	perSite := n / sites
	needFiles(t, n+1000)
	work := 100 * time.Millisecond
	if fullScale() {
		work = 3 * time.Second
	}
	g := farSites(t, sites, sink.Config{Without: sink.Pipelining | sink.Chunking, Work: map[sink.Phase]time.Duration{sink.End: work}})
	r := newRelay(t, g.DNS, g.Port, fmt.Sprintf(`delivery { max_connections = %d }
domain "*" {
  connection_limit = %d
}
`, n, perSite))
	r.start(t)
	before := r.memory(t, "VmRSS")
	// All mail waits before the first leaves: sites that are done sooner than the next message is submitted need few
	// connections.
	r.mta(t, "pause", "everything")
	l := g.load(6 * n)
	submit(t, l, r.addr)
	r.mta(t, "resume", "everything")
	began := time.Now()
	eventually(t, 2*time.Minute, func() error {
		if open := g.open(); open < n {
			return fmt.Errorf("%d connections are open, want %d", open, n)
		}
		return nil
	})
	reached, during := time.Since(began), r.memory(t, "VmRSS")
	had := g.Taken.Tally().Unique
	watch := 2 * work
	<-time.After(watch)
	rate := float64(g.Taken.Tally().Unique-had) / watch.Seconds()
	g.await(t)

	var f figures
	f.add(fmt.Sprintf("%s outbound connections, all busy, after", count(n)), "", "%.1f s", reached.Seconds())
	f.add("memory for them and the mail on them", "", "%.0f MB, %.1f KB each", during-before, (during-before)*1024/float64(n))
	f.add("delivered a second over them", fmt.Sprintf("%.0f (each takes %v for a message)", float64(n)/work.Seconds(), work), "%.0f", rate)
	f.add("CPU seconds for 1,000 messages", "", "%.2f", r.cpu(t).Seconds()/float64(l.Messages)*1000)
	f.add("delivered once", "all", "all %s", count(l.Messages))
	f.print(t, fmt.Sprintf("Outbound connections, %d sites, %d connections to each, lock-step:", sites, perSite))
}

// open is how many connections the sinks have now.
func (f *far) open() (n int) {
	for _, h := range f.Hosts {
		n += h.Server.Stats().Open
	}
	return n
}
