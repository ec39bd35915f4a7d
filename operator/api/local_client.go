package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// NewLocalClient makes a client for a server in the same process, which h belongs to (see Server.Handler). Requests
// carry the context of their callers to it, with the actor of WithActor.
func NewLocalClient(h http.Handler) *Client {
	return &Client{http: http.Client{Transport: localTransport{h}}}
}

// localTransport answers requests by a handler, as a server would.
type localTransport struct{ handler http.Handler }

// RoundTrip returns as soon as the handler has begun to answer; the rest is read as it comes.
func (t localTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in := r.Clone(ctx)
	in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), "local"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	from, to := io.Pipe()
	w := &localAnswer{ctx: r.Context(), header: http.Header{}, begun: make(chan struct{}), pipe: to}
	w.out = bufio.NewWriterSize(to, 16<<10)
	go func() {
		defer in.Body.Close()
		defer cancel()
		defer w.end()
		t.handler.ServeHTTP(w, in)
	}()
	select {
	case <-w.begun:
	case <-r.Context().Done(): // ctx ends with the handler, too
		from.Close()
		cancel()
		return nil, r.Context().Err()
	}
	if w.status == 0 {
		cancel()
		return nil, w.failed
	}
	stop := context.AfterFunc(r.Context(), func() { to.CloseWithError(r.Context().Err()) })
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: &localBody{from, func() { stop(); cancel() }}, ContentLength: -1, Request: r,
	}, nil
}

// errBroken is what a client gets of an answer that the server broke off.
var errBroken = errors.New("the server has broken off its answer")

// localAnswer is what a handler writes to. Only its goroutine uses it.
type localAnswer struct {
	ctx          context.Context // of the caller
	header, sent http.Header
	status       int
	failed       error         // set when the handler has panicked
	begun        chan struct{} // closed when status and sent, or failed, are set
	once         sync.Once
	out          *bufio.Writer
	pipe         *io.PipeWriter
}

func (w *localAnswer) Header() http.Header { return w.header }

func (w *localAnswer) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *localAnswer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(p)
}

// FlushError passes on what was written. http.ResponseController calls it.
func (w *localAnswer) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return w.out.Flush()
}

// end ends the answer when the handler returns. A handler that panics breaks it off and ends nothing else, as with
// http.Server.
func (w *localAnswer) end() {
	failed := recover()
	if failed == nil {
		w.WriteHeader(http.StatusOK)
		w.out.Flush()                      // an error: nobody reads on
		w.pipe.CloseWithError(w.ctx.Err()) // nil: the answer is whole
		return
	}
	w.failed = errBroken
	if failed != http.ErrAbortHandler {
		w.failed = fmt.Errorf("%w: %v", errBroken, failed)
	}
	w.pipe.CloseWithError(w.failed)
	w.once.Do(func() { close(w.begun) })
}

// localBody ends the request when it is closed.
type localBody struct {
	*io.PipeReader
	end func()
}

func (b *localBody) Close() error {
	b.end()
	return b.PipeReader.Close()
}
