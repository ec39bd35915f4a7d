package mta

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkPosted compares submission by HTTP with submission by SMTP to the same relay, in turns: messages of 2 KB
// from 20 connections, a request each; and 1,000 personalised messages a request, rendered from 7 KB, with
// messages of that size by SMTP. All are durable when they are answered, and delivered to a sink meanwhile.
func BenchmarkPosted(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(relayGC))
	p := newPoster(b, "log { level = \"warn\" }\nadmission { mode = \"off\" }\n")
	const clients, each, requests = 20, 1000, 4
	paragraph := strings.Repeat("A line of words that is about as long as lines are.\n", 38)
	wire := strings.ReplaceAll(paragraph, "\n", "\r\n")
	one := fmt.Sprintf(`{"from":"Shop <ann@client.example>","to":["Bob <bob@box.example>"],"subject":"Your order","text":%q}`, paragraph)
	many := thousand(paragraph + paragraph + paragraph)
	var smtp, http, large, personal cost
	var slowest, whole time.Duration
	rounds := 0
	timed := func(f func(client int), n int) cost {
		began, cpu := time.Now(), processTime()
		inParallel(n, f)
		took := cost{time.Since(began), processTime() - cpu}
		for p.w.queue.Stats().Queued > 0 { // its delivery must not be in the way of the next
			time.Sleep(10 * time.Millisecond)
		}
		return took
	}
	var mu sync.Mutex
	pump := func(body string, n int, worst *time.Duration) func(int) {
		return func(int) {
			d := p.pump(b, body, n)
			mu.Lock()
			defer mu.Unlock()
			*worst = max(*worst, d)
		}
	}
	for b.Loop() {
		rounds++
		smtp.add(timed(func(c int) { p.w.submit(b, c, each, "Subject: x\r\n\r\n"+wire) }, clients))
		http.add(timed(pump(one, each, &slowest), clients))
		large.add(timed(func(c int) { p.w.submit(b, c, requests*1000/clients, "Subject: x\r\n\r\n"+wire+wire+wire) }, clients))
		personal.add(timed(pump(many, 1, &whole), requests))
	}
	report := func(name string, messages int, c cost) {
		b.ReportMetric(float64(rounds*messages)/c.wall.Seconds(), name+"/s")
		b.ReportMetric(float64(c.cpu.Microseconds())/float64(rounds*messages), name+"-cpu-us")
	}
	report("smtp", clients*each, smtp)
	report("http", clients*each, http)
	report("smtp-7k", requests*1000, large)
	report("personal", requests*1000, personal)
	b.ReportMetric(smtp.wall.Seconds()/http.wall.Seconds(), "http:smtp")
	b.ReportMetric(large.wall.Seconds()/personal.wall.Seconds(), "personal:smtp-7k")
	b.ReportMetric(float64(slowest.Milliseconds()), "slowest-ms")
	b.ReportMetric(float64(whole.Milliseconds()), "batch-ms")
}

// relayGC is how 'mta serve' paces the collector with some ten MB alive.
const relayGC = 320

// cost is what a number of messages took: of the clock, and of processors, clients and sink included.
type cost struct{ wall, cpu time.Duration }

func (c *cost) add(d cost) { c.wall += d.wall; c.cpu += d.cpu }

// processTime is what this process has used of processors.
func processTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// thousand is a request of 1,000 personalised messages.
func thousand(text string) string {
	var s strings.Builder
	fmt.Fprintf(&s, `{"from":"Shop <ann@client.example>","subject":"Order {{order}}","text":%q,"recipients":[`, "Hello {{name}},\n"+text+"{{#items}}{{name}}\n{{/items}}")
	for i := range 1000 {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, `{"to":"Bob <bob%d@box.example>","data":{"name":"Bob","order":%d,"items":[{"name":"x"},{"name":"y"}]}}`, i, i)
	}
	return s.String() + "]}"
}

func inParallel(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// pump posts a body n times on one connection, and returns how long the slowest answer took.
func (p *poster) pump(b *testing.B, body string, n int) (slowest time.Duration) {
	address := p.w.Status().HTTP[0]
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.Error(err)
		return
	}
	defer c.Close()
	request := fmt.Appendf(nil, "POST /v1/messages HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		address, p.token, len(body), body)
	in := bufio.NewReaderSize(c, 64<<10)
	for range n {
		began := time.Now()
		if _, err := c.Write(request); err != nil {
			b.Error(err)
			return
		}
		if err := hearAccepted(in); err != nil {
			b.Error(err)
			return
		}
		slowest = max(slowest, time.Since(began))
	}
	return slowest
}

// hearAccepted reads an answer that must be a 202.
func hearAccepted(in *bufio.Reader) error {
	var status string
	length := 0
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		text := strings.TrimSpace(string(line))
		if status == "" {
			status = text
		}
		if n, ok := strings.CutPrefix(text, "Content-Length: "); ok {
			length, _ = strconv.Atoi(n)
		}
		if text == "" {
			break
		}
	}
	if !strings.Contains(status, strconv.Itoa(http.StatusAccepted)) {
		text, _ := io.ReadAll(io.LimitReader(in, int64(length)))
		return fmt.Errorf("%s: %s", status, text)
	}
	_, err := in.Discard(length)
	return err
}
