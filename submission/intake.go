package submission

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/quota"
)

// intake takes one message's content: checks it, puts this relay's header fields on top of it and
// writes it to a Draft as it comes. Only the header section is held back, to see what it lacks.
type intake struct {
	c      *conn
	tx     *transaction
	draft  Draft // nil once the message has been refused
	size   int64 // octets of content so far
	refuse *reply.Reply

	check  checker
	header header
	top    []byte // this relay's header fields
	held   int64  // octets of Config.Memory
	behalf account
	within *quota.Claim // on the limits of the tenant that the header names

	admitted Admitted // nil when nobody was asked, or it has been used up

	releaseAt time.Time // when it is to be released; zero: at once
	spread    time.Duration
}

func (c *conn) newIntake(tx *transaction) *intake {
	in := c.srv.intake.Get().(*intake)
	cfg := &c.srv.cfg
	in.c, in.tx, in.draft, in.behalf = c, tx, cfg.Store.Begin(tx.size), tx.account
	in.check = checker{newlines: c.client.newlines, maxLine: cfg.Limits.LineLength, endsCRLF: true, scratch: in.check.scratch[:0]}
	in.header = header{text: in.header.text[:0], asked: cfg.Marks}
	in.admitted = tx.claim.take()
	in.account()
	return in
}

// release lets go of everything. A message that was not committed is dropped.
func (in *intake) release() {
	in.drop()
	if in.admitted != nil {
		in.admitted.Drop()
	}
	in.within.Drop()
	in.c.srv.cfg.Memory.give(in.held)
	pool := &in.c.srv.intake
	*in = intake{check: checker{scratch: keepSmall(in.check.scratch)}, header: header{text: keepSmall(in.header.text)}, top: in.top[:0]}
	pool.Put(in)
}

// keepSmall lets a buffer be used again unless it has grown beyond what is usual.
func keepSmall(b []byte) []byte {
	if cap(b) > largeBuffer {
		return nil
	}
	return b[:0]
}

func (in *intake) drop() {
	if in.draft != nil {
		in.draft.Abort()
		in.draft = nil
	}
}

// reject notes why the message can't be accepted. The rest of its content is read and dropped.
func (in *intake) reject(r reply.Reply) {
	in.refuse = &r
	in.drop()
	in.c.srv.cfg.Memory.give(in.held)
	in.held, in.header.text, in.header.body = 0, nil, nil
}

// write takes content. A CR may be the last octet of b only at the end.
func (in *intake) write(b []byte) {
	limits := &in.c.srv.cfg.Limits
	in.size += int64(len(b))
	if in.refuse != nil || len(b) == 0 {
		return
	}
	if in.size > limits.Size {
		in.reject(tooBig.reply(limits.Size))
		return
	}
	if in.account(); in.refuse != nil {
		return
	}
	b = in.check.pass(b)
	if r, ok := in.check.verdict(); !ok {
		in.reject(r)
		return
	}
	if !in.header.done {
		b = in.header.add(b)
		if in.encodeHeader(); in.header.encoded {
			in.check.eightBit = hasEightBit(in.header.text) || hasEightBit(in.header.body) || hasEightBit(b)
		}
		in.afterHeader()
	}
	in.store(b)
}

// afterHeader checks the header section as far as it is known, and once it is complete writes it
// with this relay's fields on top.
func (in *intake) afterHeader() {
	h, limits := &in.header, &in.c.srv.cfg.Limits
	if r, ok := h.verdict(headerLimits{limits.HeaderSize, limits.Hops}); !ok {
		in.reject(r)
		return
	}
	if !h.done {
		return
	}
	var refused *reply.Reply
	if in.releaseAt, in.spread, refused = h.own.plan(in.c.srv.cfg.Now(), in.c.srv.cfg.MaxHold); refused != nil {
		in.reject(*refused)
		return
	}
	in.takeTenant()
	in.checkFrom()
	in.admitByHeader()
	in.top = in.trace().append(in.top[:0])
	in.store(in.top)
	in.store(h.text)
	if len(h.body) > 0 || len(h.text) == 0 {
		in.store(crlf) // there was no blank line to end the section
	}
	in.store(h.body)
}

// encodeHeader makes a complete header section UTF-8, if the configuration wants that.
func (in *intake) encodeHeader() {
	h := &in.header
	if !h.done || !h.nonUTF8 || !in.c.srv.cfg.EncodeHeaders {
		return
	}
	h.text, h.nonUTF8, h.encoded = encodeHeader(h.text), false, true
}

func (in *intake) trace() *trace {
	c, tx, cfg := in.c, in.tx, &in.c.srv.cfg
	t := &trace{
		hostname: cfg.Hostname, helo: tx.helo, peer: c.client.peer, protocol: tx.protocol, tls: c.tls,
		id: tx.id, time: cfg.Now(), needDate: !in.header.fields.has(FieldDate), needID: !in.header.fields.has(FieldMessageID),
	}
	if cfg.ShowUser {
		t.user = in.behalf.user
	}
	if len(tx.recipients) == 1 {
		t.only = tx.recipients[0].Address
	}
	return t
}

// store writes to the draft.
func (in *intake) store(b []byte) {
	if in.refuse != nil || len(b) == 0 {
		return
	}
	if _, err := in.draft.Write(b); err != nil {
		in.reject(in.storeTrouble("writing message", err))
	}
}

// storeTrouble makes a reply of an error of the store. It is told for debugging only: a disk that
// is full fails for each message, and the store's owner logs when that begins and ends.
func (in *intake) storeTrouble(step string, err error) reply.Reply {
	in.c.srv.cfg.Log.Debug(step, "session", in.c.client.session, "transaction", in.tx.id, "err", err)
	return storeReply(err)
}

// storeReply tells a client of the class of the store's trouble. Our own trouble is never a 5xx.
func storeReply(err error) reply.Reply {
	var d interface{ DiskFull() bool }
	if errors.As(err, &d) && d.DiskFull() {
		return diskFull.reply()
	}
	return storeFailed.reply()
}

// finish commits the message when its content is complete, and gives the answer to the client.
func (in *intake) finish() error {
	if in.refuse == nil && !in.header.done {
		in.header.end()
		if in.encodeHeader(); in.header.encoded {
			in.check.eightBit = hasEightBit(in.header.text) || hasEightBit(in.header.body)
		}
		in.afterHeader()
	}
	if !in.check.endsCRLF {
		in.store(crlf) // BDAT need not end in one, DATA must when the message goes on
	}
	if in.refuse != nil {
		return smtpError(*in.refuse)
	}
	// Whoever pipelines must not wait for this message's commit to hear of the one before.
	in.c.flush()
	m := in.message()
	if r := in.commit(m); r != nil {
		return smtpError(*r)
	}
	in.within.Accepted()
	in.tx.within.Accepted()
	in.c.client.errors, in.c.client.idle = 0, 0
	in.c.srv.cfg.Events.Received(m, everyField&^in.header.fields)
	in.log(m)
	return accepted(m.ID)
}

// log notes the acceptance for who looks for trouble. It is on the way of every message, so nothing is
// put into words when nobody reads them.
func (in *intake) log(m *envelope.Message) {
	ctx, log := context.Background(), in.c.srv.cfg.Log
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	log.LogAttrs(ctx, slog.LevelDebug, "accepted",
		slog.String("session", m.Session), slog.String("transaction", in.tx.id), slog.String("id", m.ID.String()),
		slog.String("sender", string(m.Sender)), slog.Int("recipients", len(m.Recipients)), slog.Int64("size", m.Size))
}

func (in *intake) message() *envelope.Message {
	c, tx, cfg := in.c, in.tx, &in.c.srv.cfg
	m := &envelope.Message{
		Sender: tx.sender, Recipients: tx.recipients,
		UTF8: tx.utf8, Ret: tx.ret, EnvID: tx.envID, RequireTLS: tx.requireTLS, TLSOptional: in.header.tlsOptional,
		User: in.behalf.user, Tenant: in.behalf.tenant, Tier: in.tier(), Release: in.releaseAt, Spread: in.spread,
		Received: cfg.Now(), Peer: c.client.peer, HeloName: tx.helo, Session: c.client.session, Protocol: tx.protocol,
	}
	// What the client declared is often wrong in both ways, and decides whether a host without
	// 8BITMIME can get the message; so what counts is what is there.
	if in.check.eightBit {
		m.Body = envelope.Body8BitMIME
	}
	m.Campaign, m.Marks = in.header.campaign, in.header.marks
	return m
}

// tier is how important the message is: as its header asks, up to the ceiling.
func (in *intake) tier() uint8 {
	if t, ok := in.header.tier(); ok {
		return max(t, in.behalf.ceiling)
	}
	return in.behalf.tier
}
