package smtpclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
)

// A script is what a host does, one step a line:
//
//	< text      says text (and all directly following "<" in one write)
//	> text      hears exactly text; a trailing * stands for anything
//	content     hears lines to the final dot
//	content: x  hears lines to the final dot, which are x (with | between lines)
//	octets n    hears n octets
//	silence     hears nothing: the client waits for the host
//	pause d     does nothing for a time
//	close       closes; reset cuts, and what has not arrived is lost
//	eof         hears the client close; gone finds that it has
type script string

func (s script) steps() []string {
	var steps []string
	for line := range strings.Lines(string(s)) {
		if line = strings.TrimSpace(line); line != "" {
			steps = append(steps, line)
		}
	}
	return steps
}

// host plays a script.
type host struct {
	t    *testing.T
	nc   *end
	in   *bufio.Reader
	said strings.Builder
	done chan struct{}
}

func play(t *testing.T, nc *end, s script) *host {
	h := &host{t: t, nc: nc, in: bufio.NewReader(nc), done: make(chan struct{})}
	go func() {
		defer close(h.done)
		for i, step := range s.steps() {
			if err := h.step(step); err != nil {
				t.Errorf("script step %d, %q: %v", i+1, step, err)
				h.nc.Close()
				return
			}
		}
		h.flush()
	}()
	return h
}

func (h *host) flush() {
	if h.said.Len() > 0 {
		_, _ = io.WriteString(h.nc, h.said.String())
		h.said.Reset()
	}
}

func (h *host) step(step string) error {
	verb, rest, _ := strings.Cut(step, " ")
	if verb == "<" {
		h.said.WriteString(rest + "\r\n")
		return nil
	}
	h.flush()
	switch verb {
	case ">":
		return h.hear(rest)
	case "content", "content:":
		return h.hearContent(verb == "content:", rest)
	case "octets":
		var n int
		_, _ = fmt.Sscan(rest, &n)
		_, err := io.CopyN(io.Discard, h.in, int64(n))
		return err
	case "silence":
		synctest.Wait()
		if h.in.Buffered() > 0 || h.nc.waiting() {
			return errors.New("the client speaks out of turn")
		}
	case "pause":
		d, err := time.ParseDuration(rest)
		<-time.After(d)
		return err
	case "close":
		return h.nc.Close()
	case "reset":
		h.nc.Reset()
	case "gone":
		synctest.Wait()
		if !h.nc.ended() {
			return errors.New("the client has not closed yet")
		}
	case "eof":
		if b, err := h.in.ReadByte(); err == nil {
			return fmt.Errorf("heard %q where the client should close", b)
		}
	default:
		return errors.New("no such verb")
	}
	return nil
}

func (h *host) line() (string, error) {
	line, err := h.in.ReadString('\n')
	if err != nil {
		return line, fmt.Errorf("heard %q: %w", line, err)
	}
	if !strings.HasSuffix(line, "\r\n") {
		return line, fmt.Errorf("heard %q, without CRLF", line)
	}
	return strings.TrimSuffix(line, "\r\n"), nil
}

func (h *host) hear(want string) error {
	line, err := h.line()
	if err != nil {
		return err
	}
	if prefix, any := strings.CutSuffix(want, "*"); line != want && !(any && strings.HasPrefix(line, prefix)) {
		return fmt.Errorf("heard %q", line)
	}
	return nil
}

func (h *host) hearContent(check bool, want string) error {
	var lines []string
	for {
		line, err := h.line()
		if err != nil {
			return err
		}
		if line == "." {
			break
		}
		lines = append(lines, line)
	}
	if got := strings.Join(lines, "|"); check && got != want {
		return fmt.Errorf("heard the content %q", got)
	}
	return nil
}

// Replies to EHLO.
const (
	ehloOnly   = "< 250 mx\n"
	pipelining = "< 250-mx\n< 250-SIZE 1000000\n< 250-8BITMIME\n< 250 PIPELINING\n"
	chunking   = "< 250-mx\n< 250-SIZE 1000000\n< 250-8BITMIME\n< 250-CHUNKING\n< 250 PIPELINING\n"
)

func greeted(ehlo string) string { return "< 220 mx ESMTP\n> EHLO relay.example\n" + ehlo }

func testConfig() Config {
	return Config{
		Name: "relay.example",
		Host: route.Host{Name: "mx.example", Addr: netip.MustParseAddrPort("192.0.2.1:25")},
	}
}

// connect makes a Conn to a host that plays the script, its part of the handshake included.
func connect(t *testing.T, cfg Config, s script) (*Conn, *host) {
	t.Helper()
	client, server := wire(0, 0)
	h := play(t, server, s)
	c, err := Handshake(context.Background(), client, cfg)
	if err != nil {
		t.Fatalf("Handshake: %v", err)
	}
	return c, h
}

// mail is a message with what the tests look at.
type mail struct {
	Transaction
	outcomes chan Outcome
	settled  int
}

const smallContent = "Subject: x\r\n\r\nhello\r\n"

func newMail(content string, to ...string) *mail {
	m := &envelope.Message{Sender: "s@example.org", Size: int64(len(content))}
	x := &mail{outcomes: make(chan Outcome, 1)}
	x.Message = m
	for i, a := range to {
		m.Recipients = append(m.Recipients, envelope.Recipient{Address: envelope.Address(a)})
		x.Recipients = append(x.Recipients, i)
	}
	x.Body = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }
	x.Done = func(_ *Transaction, o Outcome) {
		x.settled++
		x.outcomes <- o
	}
	return x
}

// fates gives what became of a transaction as "answered 250, excess 452".
func (x *mail) fates(t *testing.T) string {
	t.Helper()
	select {
	case o := <-x.outcomes:
		if len(o.Results) != len(x.Recipients) {
			t.Errorf("%d results for %d recipients", len(o.Results), len(x.Recipients))
		}
		x.outcomes <- o
		return fatesOf(o)
	case <-time.After(24 * time.Hour):
		t.Fatal("Done was never called")
		return ""
	}
}

func fatesOf(o Outcome) string {
	var s []string
	for _, r := range o.Results {
		s = append(s, fmt.Sprintf("%s %d", r.Fate, r.Reply.Code))
	}
	return strings.Join(s, ", ")
}

// quit ends the connection and waits.
func quit(t *testing.T, c *Conn, h *host) {
	t.Helper()
	_ = c.quitWithin(context.Background())
	<-h.done
}
