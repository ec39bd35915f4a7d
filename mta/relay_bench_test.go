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

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
)

// BenchmarkRelay is the whole way of a message of 2 KB: from 20 connections through the relay to
// a sink in the same process, durable, until all have arrived.
func BenchmarkRelay(b *testing.B) { benchmarkRelay(b, "") }

// BenchmarkReturnPath is the same with a return path, and with a signature, and with both.
func BenchmarkReturnPath(b *testing.B) {
	for _, v := range []struct{ name, extra string }{
		{"plain", ""},
		{"return-path", `sender_domain "*" { return_path = "b.client.example" }`},
		{"signed", dkimBlock("client.example", `senders = ["*"]`)},
		{"signed-return-path", dkimBlock("client.example", `senders = ["*"]`) + `sender_domain "*" { return_path = "b.client.example" }`},
	} {
		b.Run(v.name, func(b *testing.B) { benchmarkRelay(b, v.extra) })
	}
}

func benchmarkRelay(b *testing.B, extra string) {
	w := newWorld(b, sink.Config{}, `
		log { level = "warn" }
		defaults {
			smtp_port = PORT
			connection_limit = 20
		}
		`+extra)
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
	w.flights(b, 0, n, func(i int) (from, to, content string) {
		return "ann@client.example", "bob@box.example", fmt.Sprintf("From: ann@client.example\r\nX-Mta-Test-Id: %d-%d\r\n%s", client, i, body)
	})
}

// flights is submit to one of the listeners, of any mail.
func (w *world) flights(b *testing.B, listener, n int, mail func(i int) (from, to, content string)) {
	c, err := net.Dial("tcp", w.listeners.Addresses(listen.SMTP)[listener])
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
		from, to, content := mail(i)
		fmt.Fprintf(c, "MAIL FROM:<%s>\r\nRCPT TO:<%s>\r\nDATA\r\n", from, to)
		for _, code := range []string{"250", "250", "354"} {
			if !expect(code) {
				return
			}
		}
		fmt.Fprintf(c, "%s.\r\n", content)
		if !expect("250") {
			return
		}
	}
}
