// Package asking carries requests between the nodes of a cluster: one in HTTP over a talk of package link, which names
// both nodes by their certificates. A node that is asked answers by a handler. It knows no operation.
package asking

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"example.org/mta/cluster/link"
	"example.org/mta/internal/network"
)

// Patience is how long an answer may take, and how long the one before it; LongPatience is the most that an Asker has.
const (
	Patience     = 5 * time.Second
	LongPatience = 20 * time.Second
)

// Bounds of heads, in octets. A request of an operator can name many messages: it has what the control socket takes,
// which is http.DefaultMaxHeaderBytes, and the name of the operator.
const (
	maxHead  = 64 << 10 // of an answer
	maxAsked = 1<<20 + 4<<10
)

// Asker asks other nodes for a purpose. It is safe for concurrent use.
type Asker struct {
	Open    func(ctx context.Context, node uint16, purpose link.Purpose) (net.Conn, error)
	Purpose link.Purpose
	Most    int64 // octets of an answer
	AtOnce  int   // answers of a node at a time; 0: one
	Long    bool  // it has LongPatience

	mu    sync.Mutex // guards turns
	turns map[uint16]chan struct{}
}

// Ask has another node answer a request. The whole answer is in memory.
func (a *Asker) Ask(ctx context.Context, node uint16, r *http.Request) (*http.Response, error) {
	patience, silent := Patience, errSilent
	if a.Long {
		patience, silent = LongPatience, errLongSilent
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, silent)
	defer cancel()
	turn := a.turn(node)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		if err := context.Cause(ctx); err != errSilent {
			return nil, err
		}
		return nil, errBusy
	}
	answer, err := a.ask(ctx, node, r)
	if at, _ := ctx.Deadline(); err != nil && time.Until(at) < slack {
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return answer, err
}

// slack is by how much a socket, which knows the deadline of its context, may be before that with its timeout.
const slack = 50 * time.Millisecond

// errSilent and errBusy are after Patience; with the latter nothing was sent.
var (
	errSilent = fmt.Errorf("no answer within %s", Patience)
	errBusy   = fmt.Errorf("not asked: earlier questions to it have taken %s", Patience)
)

func (a *Asker) turn(node uint16) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turns == nil {
		a.turns = make(map[uint16]chan struct{})
	}
	if a.turns[node] == nil {
		a.turns[node] = make(chan struct{}, max(a.AtOnce, 1))
	}
	return a.turns[node]
}

var errLongSilent = fmt.Errorf("no answer within %s", LongPatience)

func (a *Asker) ask(ctx context.Context, node uint16, r *http.Request) (*http.Response, error) {
	conn, err := a.Open(ctx, node, a.Purpose)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := r.Write(conn); err != nil {
		return nil, err
	}
	// A line of the head has no other bound.
	from := &io.LimitedReader{R: conn, N: maxHead}
	buffered := bufio.NewReader(from)
	answer, err := http.ReadResponse(buffered, r)
	if err != nil {
		return nil, fmt.Errorf("its answer can't be read: %w", err)
	}
	from.N = 2*a.Most + maxHead // with the lengths of chunks
	text, err := io.ReadAll(io.LimitReader(answer.Body, a.Most+1))
	switch {
	case int64(len(text)) > a.Most:
		return nil, fmt.Errorf("its answer has more than %d octets", a.Most)
	case err != nil:
		return nil, fmt.Errorf("its answer was cut off: %w", err)
	}
	answer.Body = io.NopCloser(bytes.NewReader(text))
	return answer, nil
}

// Serve has a handler answer the request of a talk that another node has opened.
func Serve(ctx context.Context, talk net.Conn, handler http.Handler) {
	l := network.NewHandover()
	go l.Give(struct{ net.Conn }{talk}) // by its TLS the server would look for the protocol
	stop := context.AfterFunc(ctx, func() { talk.Close() })
	defer stop()
	s := http.Server{Handler: handler, ReadTimeout: Patience, MaxHeaderBytes: maxAsked,
		WriteTimeout: LongPatience + Patience, // the asker may have LongPatience
		BaseContext:  func(net.Listener) context.Context { return ctx },
		ErrorLog:     log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				l.Close()
			}
		}}
	s.SetKeepAlivesEnabled(false)
	_ = s.Serve(l) // the end of the one connection
}
