package api_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/operator/api"
)

// pipeListener hands out one end of each net.Pipe, so that time can be virtual.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// TestFollowingOutlastsTheReadTimeout: a log can be quiet for longer than a request may take to
// arrive.
func TestFollowingOutlastsTheReadTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := records{more: make(chan string)}
		l := &pipeListener{make(chan net.Conn), make(chan struct{})}
		s := api.NewServer(api.Config{Log: log})
		go s.Serve(l)
		defer s.Shutdown(context.Background())
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			l.conns <- theirs
			return ours, nil
		}}
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport}).Get("http://relay/v1/log?type=Delivery&follow=true")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		for range 3 {
			time.Sleep(time.Hour)
			log.more <- `{"type":"Delivery"}`
			line := make([]byte, 100)
			n, err := answer.Body.Read(line)
			if err != nil || string(line[:n]) != `{"type":"Delivery"}`+"\n" {
				t.Fatalf("got %q, %v", line[:n], err)
			}
		}
	})
}
