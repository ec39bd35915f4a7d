package sink

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
)

// BenchmarkMessages sends 2 KB messages over loopback TCP, on a few connections, as a client with
// CHUNKING can.
func BenchmarkMessages(b *testing.B) {
	body := strings.Repeat(strings.Repeat("x", 70)+"\r\n", 28)
	for _, bm := range []struct {
		name string
		cfg  Config
	}{
		{"plain", Config{}},
		{"hashes", Config{Recorder: NewRecorder(Hashes, 10_000_000)}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			s := New(bm.cfg)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			go s.Serve(l)
			defer s.Close()
			const connections = 4
			var wait sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for c := range connections {
				wait.Go(func() {
					if err := pump(l.Addr().String(), c, b.N/connections, body); err != nil {
						b.Error(err)
					}
				})
			}
			wait.Wait()
			b.ReportMetric(float64(s.Stats().Messages)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// pump sends n messages by BDAT, as fast as the connection takes them, and reads all replies.
func pump(addr string, c, n int, body string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	fmt.Fprint(conn, "EHLO bench\r\n")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "250 ") {
			break
		}
	}
	failed := make(chan error, 1)
	go func() {
		for range 3 * n {
			if _, err := r.ReadSlice('\n'); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	w := bufio.NewWriterSize(conn, 32<<10)
	for i := range n {
		head := fmt.Sprintf("Message-ID: <%d.%d@bench>\r\n\r\n", c, i)
		fmt.Fprintf(w, "MAIL FROM:<a@bench.example>\r\nRCPT TO:<b%d@sink.example>\r\nBDAT %d LAST\r\n%s%s", i, len(head)+len(body), head, body)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return <-failed
}
