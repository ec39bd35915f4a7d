package mta

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/mta/internal/sink"
)

// BenchmarkRelay is the whole way of a message of 2 KB: from 20 connections through the relay to
// a sink in the same process, durable, until all have arrived.
func BenchmarkRelay(b *testing.B) {
	w := newWorld(b, sink.Config{}, `
		log { level = "warn" }
		defaults {
			smtp_port = PORT
			connection_limit = 20
		}`)
	body := "Subject: benchmark\r\n\r\n" + strings.Repeat(strings.Repeat("x", 78)+"\r\n", 25)
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	var all sync.WaitGroup
	const clients = 20
	for c := range clients {
		n := b.N / clients
		if c < b.N%clients {
			n++
		}
		all.Go(func() { w.submit(b, c, n, body) })
	}
	all.Wait()
	accepted := time.Since(began)
	w.arrived(int64(b.N))
	b.StopTimer()
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	s := w.queue.Stats()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "msg/s")
	b.ReportMetric(float64(b.N)/accepted.Seconds(), "accepted/s")
	b.ReportMetric(float64(s.Syncs)/float64(b.N), "syncs/msg")
	b.ReportMetric(float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano())/float64(b.N)/1e3, "cpu-µs/msg")
}

// submit sends n messages down one connection, each envelope in one flight.
func (w *world) submit(b *testing.B, client, n int, body string) {
	c, err := net.Dial("tcp", w.listeners.addresses()[0])
	if err != nil {
		b.Error(err)
		return
	}
	defer c.Close()
	in := bufio.NewReader(c)
	expect := func(code string) bool {
		for {
			line, err := in.ReadString('\n')
			if err != nil || !strings.HasPrefix(line, code) {
				b.Errorf("want %s, got %q, %v", code, line, err)
				return false
			}
			if line[3] == ' ' {
				return true
			}
		}
	}
	fmt.Fprintf(c, "EHLO client.example\r\n")
	if !expect("220") || !expect("250") {
		return
	}
	for i := range n {
		fmt.Fprintf(c, "MAIL FROM:<ann@client.example>\r\nRCPT TO:<bob@box.example>\r\nDATA\r\n")
		for _, code := range []string{"250", "250", "354"} {
			if !expect(code) {
				return
			}
		}
		fmt.Fprintf(c, "X-Mta-Test-Id: %d-%d\r\n%s.\r\n", client, i, body)
		if !expect("250") {
			return
		}
	}
}
