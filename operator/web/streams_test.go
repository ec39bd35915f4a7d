package web

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/testca"
)

// TestLongAnswersGoOn: a stream can be quiet for hours, and a file can take as long, by HTTP/1.1 and by HTTP/2.
func TestLongAnswersGoOn(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		bubble.Test(t, func(t *testing.T) { longAnswers(t, protocol) })
	}
}

func longAnswers(t *testing.T, protocol string) {
	table := append([]route{
		{method: "GET", path: "/quiet", role: Anyone, serve: func(s *Server, w http.ResponseWriter, r *request) error {
			r.session = s.sessions.begin(Identity{User: "vera", Role: Viewer})
			return s.stream(w, r, func(ctx context.Context, send func([]byte) error) error {
				for range 3 {
					time.Sleep(time.Hour)
					if err := send([]byte("<p>late</p>")); err != nil {
						return err
					}
				}
				return nil
			})
		}},
		{method: "GET", path: "/slow", role: Anyone, serve: func(s *Server, w http.ResponseWriter, r *request) error {
			out := s.attachment(w, "slow")
			for range 3 {
				time.Sleep(time.Hour)
				if _, err := io.WriteString(out, "late"); err != nil {
					return out.end(err)
				}
			}
			return out.end(nil)
		}},
	}, routes...)
	c := newConsoleOf(t, table, func(cfg *Config) {
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{*testca.New(t).Issue(t, []string{"console.example"})}}
		cfg.Logins = nil
	})
	l := &pipes{make(chan net.Conn), make(chan struct{})}
	go c.Serve(l)
	defer c.http.Close()
	way := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: protocol == "HTTP/2.0",
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			l.conns <- theirs
			return ours, nil
		},
	}
	defer way.CloseIdleConnections()
	for _, path := range []string{"/quiet", "/slow"} {
		answer, err := (&http.Client{Transport: way}).Get("https://console.example" + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.Proto != protocol || strings.Count(string(text), "late") != 3 {
			t.Errorf("%s by %s: %v, %d of 3 come", path, answer.Proto, err, strings.Count(string(text), "late"))
		}
	}
}

// pipes is a listener for connections in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// TestStreamsLeaveTheAnswerAlone: nothing is written to the answer once the handler has returned; the server may have given
// its buffers to another request.
func TestStreamsLeaveTheAnswerAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newConsole(t, nil)
		w := &slowWriter{ResponseRecorder: httptest.NewRecorder()}
		r := c.newRequest(httptest.NewRequestWithContext(t.Context(), "GET", "http://console.example/", nil), nil)
		r.session = c.sessions.begin(Identity{User: "vera", Role: Viewer})
		c.logins.change("vera", r.session.identity)
		err := c.stream(w, r, func(context.Context, func([]byte) error) error {
			time.Sleep(aliveEvery + time.Second) // so it ends while something is written
			return nil
		})
		if err != nil || w.writing || !strings.Contains(w.Body.String(), "alive") {
			t.Errorf("%v, it still writes: %v\n%s", err, w.writing, w.Body)
		}
	})
}

// slowWriter takes three seconds for each write.
type slowWriter struct {
	*httptest.ResponseRecorder
	writing bool
}

func (w *slowWriter) Write(text []byte) (int, error) {
	w.writing = true
	defer func() { w.writing = false }()
	time.Sleep(3 * time.Second)
	return w.ResponseRecorder.Write(text)
}
