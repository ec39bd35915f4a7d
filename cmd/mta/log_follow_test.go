package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/operator/api"
)

// TestFollowANode: each record once and in order, also of pages that are full; a node that is silent is named once, and its
// records come when it answers; the end of the relay here ends it.
func TestFollowANode(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var (
			mu    sync.Mutex // guards what follows
			errs  strings.Builder
			got   []string
			log   []string
			fails error
			asked int
		)
		f := follower{c: &cli{err: &errs}, each: func(node int, record []byte) error {
			got = append(got, fmt.Sprintf("%d%s", node, record))
			return nil
		}, ask: func(_ context.Context, after string) (p api.LogPage, _ error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			if fails != nil {
				return p, fails
			}
			from := len(log)
			if after != "" {
				fmt.Sscan(after, &from)
			}
			to := min(from+2, len(log))
			for _, text := range log[from:to] {
				p.Records = append(p.Records, json.RawMessage(text))
			}
			p.Next, p.Complete = fmt.Sprint(to), to == len(log)
			return p, nil
		}}
		log = []string{`"a"`, `"b"`}
		ended := make(chan error, 1)
		go func() { ended <- f.follow(t.Context(), 2, "1") }()
		pass := func(d time.Duration, change func()) {
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			change()
		}
		pass(time.Millisecond, func() { log = append(log, `"c"`, `"d"`, `"e"`, `"f"`, `"g"`) })
		pass(time.Second, func() { fails = errors.New("node 2: no answer within 5s") })
		pass(10*time.Second, func() { log, fails = append(log, `"h"`), nil })
		pass(time.Second, func() { fails = &api.Error{Message: "connection refused"} })
		if err := <-ended; !api.Down(err) || errors.Is(err, fs.ErrPermission) {
			t.Error(err)
		}
		if asked > 20 {
			t.Errorf("asked %d times in 13 s", asked)
		}
		if text := strings.Join(got, ""); text != `2"b"2"c"2"d"2"e"2"f"2"g"2"h"` {
			t.Errorf("it gives %s", text)
		}
		if want := "mta: node 2: no answer within 5s; its records come when it answers\nmta: node 2 answers again\n"; errs.String() != want {
			t.Errorf("it says %q", errs.String())
		}
	})
}
