package link

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/cluster/ca"
	"example.org/mta/internal/bubble"
)

// TestATalk has an end for both directions, ends with the link, and does not disturb messages.
func TestATalk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, _, ends := nodes(t, 2)
		ended := make(chan error, maxTalks+1)
		ends[2].cfg.Talks = map[string]func(context.Context, uint16, net.Conn){
			"echoes": func(_ context.Context, from uint16, talk net.Conn) {
				var text string
				for {
					err := Read(talk, &text)
					if err == nil && from != 1 {
						err = errors.New("it is of another node")
					}
					if err != nil {
						ended <- err
						return
					}
					Write(talk, text+text)
				}
			},
		}
		open := func(purpose string) net.Conn {
			t.Helper()
			talk, err := ends[1].Open(t.Context(), 2, Purpose{purpose, 2})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { talk.Close() })
			return talk
		}
		says := func(talk net.Conn, want string) {
			t.Helper()
			var text string
			Write(talk, "ab")
			if err := Read(talk, &text); text != want || (err == nil) != (want != "") {
				t.Errorf("%q, %v; want %q", text, err, want)
			}
		}
		first := open("echoes")
		says(first, "abab")
		ends[1].Send(nudge(1, 2, 1))
		ends[2].received(t, nudge(1, 2, 1))
		says(first, "abab")
		says(open("verses"), "")
		for range maxTalks - 1 {
			says(open("echoes"), "abab")
		}
		says(open("echoes"), "")
		first.Close()
		synctest.Wait()
		says(open("echoes"), "abab")
		ends[2].stop()
		for range maxTalks + 1 {
			if err := <-ended; err == nil {
				t.Error("a talk has not ended")
			}
		}
		if _, err := ends[1].Open(t.Context(), 12, Purpose{"echoes", 2}); err == nil || !strings.Contains(err.Error(), "it is not a member") {
			t.Error(err)
		}
	})
}

// TestATalkWithAnEarlierVersion: the node is named, and it notices nothing but a connection that ends.
func TestATalkWithAnEarlierVersion(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		net, dir, ends := nodes(t, 1)
		cfg := config(net, dir, 2, issue(t, dir, 2, ca.NodeHolds), new(logged))
		old, listener := New(cfg), net.listen("2")
		done := make(chan error)
		go func() {
			raw, err := listener.Accept()
			if err != nil {
				done <- err
				return
			}
			conn := tls.Server(raw, old.settings())
			var theirs hello
			if err := decode(conn, maxHello, func() {}, &theirs); err != nil || theirs.Newest != newest || theirs.Oldest != oldest {
				t.Errorf("%+v, %v", theirs, err)
			}
			conn.Write(frame(`{"Newest":2,"Oldest":1}`))
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
			done <- err
		}()
		_, err := ends[1].Open(t.Context(), 2, Purpose{"questions", 3})
		if err == nil || !strings.Contains(err.Error(), "node 2 has an earlier version of mta, without questions") {
			t.Error(err)
		}
		if err := <-done; err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	})
}
