package web

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"example.org/mta/operator/api"
)

// maxStreams bounds the open streams of a session: a browser has six connections to a host by HTTP/1.1, and
// pages need some.
const maxStreams = 4

// Bounds of answers that take longer than a page may.
const (
	aliveEvery = 15 * time.Second // a stream says that it is there
	readIn     = 10 * time.Second // who takes longer to read what a stream sends is cut
)

// longAnswer writes an answer that goes on for longer than a page may. Each write has a deadline, and there is none
// between two: by HTTP/2 it would end the answer though nothing is being written.
type longAnswer struct {
	w  http.ResponseWriter
	in time.Duration // a write has to be done
}

func newLongAnswer(w http.ResponseWriter, in time.Duration) longAnswer {
	a := longAnswer{w, in}
	a.deadline(time.Time{})
	return a
}

func (a longAnswer) deadline(t time.Time) { _ = http.NewResponseController(a.w).SetWriteDeadline(t) }

func (a longAnswer) Write(text []byte) (int, error) {
	a.deadline(time.Now().Add(a.in))
	defer a.deadline(time.Time{})
	return a.w.Write(text)
}

// flush sends what was written.
func (a longAnswer) flush() error {
	a.deadline(time.Now().Add(a.in))
	defer a.deadline(time.Time{})
	return http.NewResponseController(a.w).Flush()
}

// end bounds what the server has left to send after the handler.
func (a longAnswer) end() { a.deadline(time.Now().Add(a.in)) }

// stream answers with server-sent events until the browser leaves or the console stops. follow sends each as
// HTML, which the page's own script puts at the front of the element with data-stream.
func (s *Server) stream(w http.ResponseWriter, r *request,
	follow func(ctx context.Context, send func(html []byte) error) error) error {
	key := r.session.key()
	if !s.streams.begin(key, maxStreams) {
		return &api.Error{Status: http.StatusTooManyRequests, Message: "you follow four streams already",
			Hint: "close a page that follows something"}
	}
	defer s.streams.end(key)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	defer context.AfterFunc(s.stopped, cancel)()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would wait for more
	out := newLongAnswer(w, readIn)
	defer out.end()
	var mu sync.Mutex
	put := func(text string) error {
		mu.Lock()
		defer mu.Unlock()
		if !s.still(r) {
			cancel()
			text = event("failure", "The session has ended: log in again.")
		}
		_, err := out.Write([]byte(text))
		if err == nil {
			err = out.flush()
		}
		if err != nil {
			cancel()
		}
		return err
	}
	if err := put("retry: 3000\n\n"); err != nil {
		return nil
	}
	var alive sync.WaitGroup
	defer func() { // w is not ours any more after the return
		cancel()
		alive.Wait()
	}()
	alive.Go(func() { // so that a browser that has gone is noticed, and a session that has ended
		var failed error
		defer func() {
			if failed != nil {
				cancel()
			}
		}()
		defer s.recovered(r, &failed)
		tick := time.NewTicker(aliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = put(": alive\n\n")
			case <-ctx.Done():
				return
			}
		}
	})
	err := follow(ctx, func(html []byte) error { return put(event("", string(bytes.TrimSpace(reveal(html))))) })
	if err != nil && ctx.Err() == nil {
		_ = put(event("failure", err.Error()))
	}
	return nil
}

// lineEnds are those of an event stream: a stranger's text has them, too.
var lineEnds = strings.NewReplacer("\r\n", "\ndata: ", "\r", "\ndata: ", "\n", "\ndata: ")

// event is one of a stream; the name "" is the usual one.
func event(name, data string) string {
	text := "data: " + lineEnds.Replace(data) + "\n\n"
	if name != "" {
		text = "event: " + name + "\n" + text
	}
	return text
}
