package relaytest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
)

// Outside is a relay in a bubble that is asked by those who are not: other processes, browsers, tests with a clock. Its
// time stands still while nobody asks, and passes in steps of a millisecond while it answers.
type Outside struct {
	*Sample // for Do alone
	answer  http.Handler
	calls   chan func() // that its bubble makes
	asked   sync.WaitGroup
	ended   chan struct{}
}

// patience is how long an answer may take, in the relay's time.
const patience = time.Minute

// Serve starts a bubble with a relay that build makes. Close ends it.
func Serve(t *testing.T, build func(*testing.T) *Sample) *Outside {
	o := &Outside{calls: make(chan func()), ended: make(chan struct{})}
	ready := make(chan struct{})
	go func() {
		defer close(o.ended)
		bubble.Test(t, func(t *testing.T) {
			// A process that another test starts would, until it runs, have the files open that build opens and closes,
			// and hold their locks.
			o.Sample = func() *Sample {
				syscall.ForkLock.RLock()
				defer syscall.ForkLock.RUnlock()
				return build(t)
			}()
			o.answer = o.ControlHandler()
			close(ready)
			for call := range o.calls {
				call()
			}
		})
	}()
	select {
	case <-ready:
	case <-o.ended:
		t.Fatal("the relay has not started")
	}
	return o
}

// Close stops the relay. Nobody asks any more.
func (o *Outside) Close() {
	o.asked.Wait()
	close(o.calls)
	<-o.ended
}

// Do calls f in the bubble, and waits.
func (o *Outside) Do(f func()) {
	done := make(chan struct{})
	o.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

// ServeHTTP answers as the control socket does.
func (o *Outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.asked.Add(1)
	defer o.asked.Done()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	gone, done := r.Context().Done(), make(chan struct{})
	to := &stream{ResponseWriter: w}
	var failed any
	var cancel context.CancelFunc // of the bubble, as its context is
	o.calls <- func() {
		var ctx context.Context
		ctx, cancel = context.WithCancel(context.WithoutCancel(r.Context()))
		in := r.Clone(ctx)
		in.Body = io.NopCloser(bytes.NewReader(body))
		answered := make(chan struct{})
		go func() {
			defer close(done)
			defer close(answered)
			defer func() { failed = recover() }() // as a handler may, to break off its answer
			o.answer.ServeHTTP(to, in)
		}()
		for passed := time.Duration(0); passed < patience && !to.flushed.Load(); passed += time.Millisecond {
			synctest.Wait()
			select {
			case <-answered:
				return
			default:
				time.Sleep(time.Millisecond)
			}
		}
	}
	select {
	case <-gone:
		o.Do(func() { cancel(); synctest.Wait() })
	case <-done:
	}
	if <-done; failed != nil {
		panic(failed)
	}
}

// stream is an answer that has no end once a part of it was flushed: what follows comes when somebody asks.
type stream struct {
	http.ResponseWriter
	flushed atomic.Bool
}

// FlushError implements what http.ResponseController calls.
func (s *stream) FlushError() error {
	s.flushed.Store(true)
	return http.NewResponseController(s.ResponseWriter).Flush()
}
