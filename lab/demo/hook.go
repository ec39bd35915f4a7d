package demo

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"example.org/mta/mta/accounting"
	"example.org/mta/mta/events"
)

// hook is the web hook of the senders' application: a stream of the relay's events goes there. It dies once, and
// comes back at the same address.
type hook struct {
	addr   string
	secret string
	signer *events.StandardWebhooks

	mu      sync.Mutex // guards what follows
	server  *http.Server
	ended   chan struct{}                       // the server has ended
	seen    map[string]bool                     // ids of events
	heard   map[accounting.Type]map[string]bool // recipients
	again   int64                               // events that came more than once
	wrong   int64                               // requests that were not signed, or not readable
	outages int
}

func startHook() (*hook, error) {
	h := &hook{addr: "127.0.0.1:0", secret: events.NewShared(), seen: make(map[string]bool),
		heard: make(map[accounting.Type]map[string]bool)}
	key, err := events.ParseSecret(h.secret)
	if err != nil {
		return nil, err
	}
	h.signer = events.NewStandardWebhooks(key)
	return h, h.open()
}

// open begins to listen, at the address of the last time.
func (h *hook) open() error {
	l, err := net.Listen("tcp", h.addr)
	if err != nil {
		return fmt.Errorf("opening the web hook: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addr = l.Addr().String()
	h.server, h.ended = &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}, make(chan struct{})
	go func(s *http.Server, ended chan struct{}) {
		defer close(ended)
		_ = s.Serve(l)
	}(h.server, h.ended)
	return nil
}

// die ends the server in the midst of whatever it does.
func (h *hook) die() {
	h.mu.Lock()
	server, ended := h.server, h.ended
	if server != nil {
		h.outages++
	}
	h.server = nil
	h.mu.Unlock()
	if server != nil {
		server.Close()
		<-ended
	}
}

// alive reports whether it listens.
func (h *hook) alive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.server != nil
}

// ServeHTTP takes a batch of events.
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := h.take(r)
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server != nil { // else it was cut off by its end
		h.wrong++
	}
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func (h *hook) take(r *http.Request) error {
	in := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return err
		}
		in = z
	}
	body, err := io.ReadAll(io.LimitReader(in, 16<<20))
	if err != nil {
		return err
	}
	if err := h.verify(r.Header, body); err != nil {
		return err
	}
	var events []struct {
		Type      accounting.Type `json:"type"`
		EventID   string          `json:"event_id"`
		Recipient string          `json:"recipient"`
	}
	if err := json.Unmarshal(body, &events); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range events {
		if h.seen[e.EventID] {
			h.again++
			continue
		}
		h.seen[e.EventID] = true
		if h.heard[e.Type] == nil {
			h.heard[e.Type] = make(map[string]bool)
		}
		h.heard[e.Type][e.Recipient] = true
	}
	return nil
}

// verify checks a signature by making it once more.
func (h *hook) verify(got http.Header, body []byte) error {
	seconds, err := strconv.ParseInt(got.Get(events.TimestampField), 10, 64)
	if err != nil {
		return errors.New("no time")
	}
	want := make(http.Header)
	if err := h.signer.Sign(want, got.Get(events.IDField), time.Unix(seconds, 0), body); err != nil {
		return err
	}
	if want.Get(events.SignatureField) != got.Get(events.SignatureField) {
		return errors.New("the signature is wrong")
	}
	return nil
}

// sums gives the number of different events, and of those that came again.
func (h *hook) sums() (events, again int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return int64(len(h.seen)), h.again
}

// refused is how many requests could not be believed.
func (h *hook) refused() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wrong
}

// missing returns those for which no event has come. It changes all.
func (h *hook) missing(all []happening) []happening {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(all, func(x happening) bool { return h.heard[x.kind][x.recipient] })
}
