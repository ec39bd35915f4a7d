package smtpclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"example.org/mta/internal/reply"
)

// Handshake makes a session of a connection that was just dialled: greeting, EHLO (or HELO),
// STARTTLS, AUTH, as cfg demands. An error is an *Error; nc is then closed. ctx bounds the
// handshake as a whole and nothing after it.
func Handshake(ctx context.Context, nc net.Conn, cfg Config) (*Conn, error) {
	cfg.Timeouts = cfg.Timeouts.withDefaults()
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	c := &Conn{cfg: cfg, raw: nc, conn: nc, wrote: make(chan struct{}), ended: make(chan struct{})}
	c.in.src = nc
	c.trace.Store(cfg.Trace)
	c.wake.L = &c.mu
	// The deadlines of the steps don't hear ctx; one in the past is what unblocks them.
	release := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	h := &handshake{Conn: c, ctx: ctx}
	err := h.introduce()
	if !release() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		h.giveUp(err)
		return nil, h.asError(err)
	}
	c.start()
	return c, nil
}

// handshake is a Conn on its way to be one.
type handshake struct {
	*Conn
	ctx context.Context // of the call that is going on
}

// start lets the two goroutines go.
func (c *Conn) start() {
	c.mode = c.caps.mode()
	if c.cfg.MaxMode != anyMode {
		c.mode = min(c.mode, c.cfg.MaxMode)
	}
	c.mu.window = newPacedWindow(c.cfg.Window, c.cfg.MaxWindow)
	_ = c.conn.SetDeadline(time.Time{})
	c.in.src = incoming{c}
	go c.write()
	go c.read()
}

var errBadName = errors.New("an EHLO name has one or more letters and no blanks")

// introduce is the conversation before the first message.
func (h *handshake) introduce() error {
	if strings.ContainsAny(h.cfg.Name, " \r\n\t") || h.cfg.Name == "" {
		return &Error{Reply: reply.Local(451, reply.Enhanced{4, 3, 5}, "EHLO",
			"the source's EHLO name %q can't be sent", h.cfg.Name), Err: errBadName}
	}
	if h.cfg.TLS != nil && h.cfg.TLS.Implicit {
		if err := h.startTLS(); err != nil {
			return err
		}
	}
	if err := h.greeting(); err != nil {
		return err
	}
	if err := h.hello(); err != nil {
		return err
	}
	if err := h.secure(); err != nil {
		return err
	}
	if h.cfg.Auth != nil {
		return h.authenticate()
	}
	return nil
}

func (h *handshake) greeting() error {
	r, err := h.hear("greeting", h.cfg.Timeouts.Greeting)
	if err != nil {
		return err
	}
	return expect("greeting", r, 220)
}

// hello says EHLO, and HELO to a host that doesn't know EHLO (RFC 5321, 3.2).
func (h *handshake) hello() error {
	r, err := h.say("EHLO", "EHLO "+h.cfg.Name, h.cfg.Timeouts.Hello)
	if err != nil {
		return err
	}
	switch {
	case r.positive():
		h.caps = parseCapabilities(r)
		return nil
	case r.code < 500:
		return expect("EHLO", r, 250)
	}
	refusal := r.reply("EHLO")
	if r, err = h.say("HELO", "HELO "+h.cfg.Name, h.cfg.Timeouts.Hello); err != nil {
		return err
	}
	h.caps = Capabilities{}
	if r.negative() {
		return &Error{Reply: refusal} // the answer to EHLO is the one that says why
	}
	return expect("HELO", r, 250)
}

// secure does STARTTLS (RFC 3207), if it is wanted and to be had.
func (h *handshake) secure() error {
	want := h.cfg.TLS
	if want == nil {
		return nil
	}
	if !want.Implicit {
		if on, err := h.sayStartTLS(); err != nil || !on {
			return err
		}
		if err := h.startTLS(); err != nil {
			return err
		}
		// What the host said in clear text is not to be relied on (RFC 3207, 4.2).
		if err := h.hello(); err != nil {
			return err
		}
	}
	if want.REQUIRETLS && !h.caps.RequireTLS {
		return &Error{Reply: reply.Local(550, reply.Enhanced{5, 7, 30}, "EHLO",
			"the message requires REQUIRETLS (RFC 8689), and the host does not offer it")}
	}
	return nil
}

// sayStartTLS asks for TLS, and reports whether its handshake comes next. Without, and without an error,
// the session goes on in clear text: RFC 3207, 4 leaves that to the client.
func (h *handshake) sayStartTLS() (on bool, err error) {
	want := h.cfg.TLS
	if !h.caps.StartTLS {
		if want.Required {
			err = &Error{NoTLS: true,
				Reply: want.refusal(reply.Enhanced{4, 7, 4}, "TLS is required and the host does not offer it")}
		}
		return false, err
	}
	r, err := h.say("STARTTLS", "STARTTLS", h.cfg.Timeouts.Hello)
	switch {
	case err != nil:
		return false, err
	case r.negative() && want.Required:
		return false, &Error{NoTLS: true, Reply: r.reply("STARTTLS")}
	case r.negative():
		return false, nil
	case r.code != 220:
		return false, outOfStep("STARTTLS", "the host answered %s with %q", "STARTTLS", clean(r.raw, 80))
	}
	// Nobody has verified what came before TLS: a reply that is there already was put there for us to
	// take for one under TLS (CVE-2011-0411).
	if h.in.discard() {
		h.cfg.Log.Warn("discarded what a host sent between STARTTLS and TLS", "host", h.cfg.Host)
	}
	return true, nil
}

// say sends a command and hears the reply.
func (h *handshake) say(command, line string, patience time.Duration) (rawReply, error) {
	return h.exchange(command, line, line, patience)
}

// exchange is say; shown is what traces get in place of line.
func (h *handshake) exchange(command, line, shown string, patience time.Duration) (rawReply, error) {
	h.traceCommands(nil, []byte(shown))
	_ = h.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := h.conn.Write([]byte(line + "\r\n")); err != nil {
		return rawReply{}, &Error{Reply: lost(command, err, " while sending "+command), Err: err}
	}
	return h.hear(command, patience)
}

// hear reads a reply.
func (h *handshake) hear(command string, patience time.Duration) (rawReply, error) {
	_ = h.conn.SetReadDeadline(time.Now().Add(patience))
	if err := h.ctx.Err(); err != nil { // its AfterFunc may have come before that deadline
		return rawReply{}, err
	}
	r, err := h.in.next()
	switch {
	case errors.Is(err, ErrOutOfStep):
		return r, &Error{Reply: reply.Local(451, reply.Enhanced{4, 5, 0}, command, "%v", err), Err: err}
	case err != nil:
		return r, &Error{Reply: lost(command, err, " while waiting for the "+awaited(command)), Err: err}
	}
	h.traceReply(expectation{}, r)
	h.answered()
	return r, nil
}

func (h *handshake) answered() {
	if h.cfg.Answered != nil {
		h.cfg.Answered()
	}
}

func awaited(command string) string {
	if command == "greeting" {
		return command
	}
	return "reply to " + command
}

// expect makes an error of a reply that isn't the one that must come.
func expect(command string, r rawReply, code int) error {
	switch {
	case r.code == code:
		return nil
	case r.negative():
		return &Error{Reply: r.reply(command)}
	case r.positive():
		return nil // 250 for 220 and the like: some hosts
	}
	return outOfStep(command, "the host answered %s with %q", command, clean(r.raw, 80))
}

// giveUp closes, with QUIT where the host is still listening to commands (RFC 5321, 4.1.1.10). The reply
// isn't waited for.
func (h *handshake) giveUp(err error) {
	var e *Error
	if errors.As(err, &e) && e.Err == nil {
		_ = h.conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = h.conn.Write([]byte("QUIT\r\n"))
	}
	_ = h.raw.Close()
}

// asError makes an *Error of what ended the handshake; when that was ctx, it says so.
func (h *handshake) asError(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Reply: reply.Local(421, reply.Enhanced{4, 4, 2}, "", "%v", err), Err: err}
	}
	cause := context.Cause(h.ctx)
	if cause == nil {
		return e
	}
	// A new one: err has e in its chain, and a chain must not lead back to itself.
	return &Error{Reply: e.Reply, Err: fmt.Errorf("%w (%w)", cause, err)}
}
