package admit_test

import (
	"net"
	"net/netip"
	"net/textproto"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/mta/mta/admit"
	"example.org/mta/submission"
	"example.org/mta/submission/intake"
)

// BenchmarkRefuse is what a refused MAIL costs over TCP, with 20 clients that try again at once, each
// time with another message, and connect again after 421. cpu-ns/op is of the relay and its clients
// together, p99-us what a client waits.
func BenchmarkRefuse(b *testing.B) {
	gate := admit.New(admit.Settings{Mode: admit.Utilisation, SyncLatency: 100 * time.Millisecond, MemoryLimit: 1}, admit.Machine{
		Now: time.Now, Room: func() int64 { return 1 << 40 }, Memory: func() int64 { return 1 }, Slots: 4096,
	})
	go gate.Run(b.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := submission.New(submission.Config{Intake: intake.Config{Hostname: "relay.example", Admission: gate, Tier: 4, TierCeiling: 4}, RelayFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	go server.Serve(l)
	defer server.Shutdown(b.Context())
	var next atomic.Int64
	refuse := func(n int) (took []time.Duration) {
		var c *textproto.Conn
		for len(took) < n {
			if c == nil {
				if c, err = textproto.Dial("tcp", l.Addr().String()); err != nil {
					b.Error(err)
					return took
				}
				c.ReadResponse(220)
				c.PrintfLine("EHLO client.example")
				c.ReadResponse(250)
			}
			began := time.Now()
			c.PrintfLine("MAIL FROM:<a@sender.example> SIZE=%d", next.Add(1)) // another one each time: none is held
			code, _, _ := c.ReadResponse(0)
			switch code {
			case 451, 421:
				took = append(took, time.Since(began))
			case 250:
				c.PrintfLine("RSET")
				c.ReadResponse(250)
			}
			if code == 421 {
				c.Close()
				c = nil
			}
		}
		if c != nil {
			c.Close()
		}
		return took
	}
	for gate.Status().Now.Level >= 5*128 { // the gate has not looked yet, or has seen nothing
		time.Sleep(10 * time.Millisecond)
		gate.Admit(intake.AdmitRequest{Tier: 4})
	}
	const clients = 20
	took := make([][]time.Duration, clients)
	var all sync.WaitGroup
	before := cpu()
	b.ResetTimer()
	for i := range clients {
		all.Go(func() { took[i] = refuse(b.N/clients + 1) })
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	sorted := slices.Sorted(slices.Values(slices.Concat(took...)))
	b.ReportMetric(float64(sorted[len(sorted)*99/100].Microseconds()), "p99-us")
	b.Logf("%d refused", len(sorted))
}

// cpu is the processor time of the process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
