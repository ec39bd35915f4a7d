package web

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"example.org/mta/mta/control"
)

// maxStreams bounds the open streams of a session: a browser has six connections to a host by HTTP/1.1, and
// pages need some.
const maxStreams = 4

// streams counts those that are open.
type streams struct {
	mu      sync.Mutex // guards what follows, and session.streams
	byProxy map[string]int
}

func (st *streams) take(s *session) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.id == "" { // a proxy's user has a session for each request
		if st.byProxy == nil {
			st.byProxy = make(map[string]int)
		}
		if st.byProxy[s.identity.User] >= maxStreams {
			return false
		}
		st.byProxy[s.identity.User]++
		return true
	}
	if s.streams >= maxStreams {
		return false
	}
	s.streams++
	return true
}

func (st *streams) giveBack(s *session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.id != "" {
		s.streams--
		return
	}
	if st.byProxy[s.identity.User]--; st.byProxy[s.identity.User] == 0 {
		delete(st.byProxy, s.identity.User)
	}
}

// stream answers with server-sent events until the browser leaves or the console stops. follow sends each as
// HTML, which the page's own script puts at the front of the element with data-stream.
func (s *Server) stream(w http.ResponseWriter, r *request, follow func(ctx context.Context, send func(html []byte) error) error) error {
	if !s.streams.take(r.session) {
		return &control.Error{Status: http.StatusTooManyRequests, Message: "you follow four streams already", Hint: "close a page that follows something"}
	}
	defer s.streams.giveBack(r.session)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	defer context.AfterFunc(s.stopped, cancel)()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would wait for more
	var mu sync.Mutex
	put := func(text string) error {
		mu.Lock()
		defer mu.Unlock()
		if !s.still(r) {
			cancel()
			text = "event: failure\ndata: The session has ended: log in again.\n\n"
		}
		_ = out.SetWriteDeadline(time.Now().Add(10 * time.Second)) // who reads too slowly is cut
		if _, err := w.Write([]byte(text)); err != nil {
			cancel()
			return err
		}
		return out.Flush()
	}
	if err := put("retry: 3000\n\n"); err != nil {
		return nil
	}
	go func() { // so that a browser that has gone is noticed, and a session that has ended
		var failed error
		defer func() {
			if failed != nil {
				cancel()
			}
		}()
		defer s.recovered(r, &failed)
		tick := time.NewTicker(15 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = put(": alive\n\n")
			case <-ctx.Done():
				return
			}
		}
	}()
	err := follow(ctx, func(html []byte) error {
		return put("data: " + strings.ReplaceAll(string(bytes.TrimSpace(reveal(html))), "\n", "\ndata: ") + "\n\n")
	})
	if err != nil && ctx.Err() == nil {
		_ = put("event: failure\ndata: " + strings.ReplaceAll(err.Error(), "\n", " ") + "\n\n")
	}
	return nil
}
