package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"example.org/mta/operator/api"
)

// TestLocalClient: what a client gets over a socket, it gets in the same process.
func TestLocalClient(t *testing.T) {
	text := "Subject: long\r\n\r\n" + strings.Repeat("x", 1<<20)
	c := api.NewLocalClient(api.NewServer(api.Config{Queue: content{text: text}}).Handler())
	defer c.Close()
	if _, err := api.OpShow.Call(t.Context(), c, api.None{}, "0000000000000"); !api.IsNotFound(err) {
		t.Errorf("a message that is not there: %v", err)
	}
	var got strings.Builder
	if err := api.OpContent.Copy(t.Context(), c, &got, api.None{}, "1m7yrrt800000"); err != nil || got.String() != text {
		t.Errorf("%d octets of %d, %v", got.Len(), len(text), err)
	}
}

// content is that of all messages.
type content struct {
	none
	text string
}

func (c content) Content(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(c.text)), nil
}

// TestLocalClientFollows: records arrive while the request goes on, and it ends with its caller's context.
func TestLocalClientFollows(t *testing.T) {
	log := records{more: make(chan string)}
	c := api.NewLocalClient(api.NewServer(api.Config{Log: log}).Handler())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	got := make(chan string)
	go func() {
		ended <- c.Log(ctx, api.LogQuery{Follow: true}, func(record []byte) error {
			got <- string(record)
			return nil
		})
	}()
	for range 3 {
		log.more <- `{"type":"Bounce"}`
		if got := <-got; got != `{"type":"Bounce"}` {
			t.Errorf("followed %s", got)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("following ends with %v", err)
	}
}

// TestLocalClientIsNamed: the actor is who the context of the call names, since no stranger has made that.
func TestLocalClientIsNamed(t *testing.T) {
	ctx := api.WithActor(t.Context(), api.Actor{Kind: api.ByConsole, User: "anna", Address: "192.0.2.7"})
	done, err := api.OpAddRule.Call(ctx, api.NewLocalClient(api.NewServer(api.Config{Rules: pausing{}}).Handler()), api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{All: true}, By: "somebody else"})
	if err != nil || done.By != "anna" {
		t.Errorf("paused by %q, want anna (%v)", done.By, err)
	}
}

// TestLocalClientOutlivesAPanic: a handler's fault ends its own answer and nothing else.
func TestLocalClientOutlivesAPanic(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"before the answer":  func(http.ResponseWriter, *http.Request) { panic("a fault") },
		"within the answer":  func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"ver`)); panic("a fault") },
		"answer broken off":  func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"ver`)); panic(http.ErrAbortHandler) },
		"answer is no JSON":  func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"ver`)) },
		"nothing is written": func(http.ResponseWriter, *http.Request) {},
	} {
		if s, err := api.OpStatus.Call(t.Context(), api.NewLocalClient(h), api.None{}); err == nil {
			t.Errorf("%s: got %+v and no error", name, s)
		}
	}
}

// TestLocalClientOfAQuickHandler: a handler that has returned before its answer is looked at has not been given up.
func TestLocalClientOfAQuickHandler(t *testing.T) {
	quick := api.NewLocalClient(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"state": "running"}`)) }))
	broken := api.NewLocalClient(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 200 {
				if s, err := api.OpStatus.Call(t.Context(), quick, api.None{}); err != nil || s.State != "running" {
					t.Errorf("%q, %v", s.State, err)
				}
				if _, err := api.OpStatus.Call(t.Context(), broken, api.None{}); err == nil || errors.Is(err, context.Canceled) {
					t.Errorf("broken off: %v", err)
				}
			}
		})
	}
	all.Wait()
}
