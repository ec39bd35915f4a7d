package intake

import (
	"context"
	"errors"
	"time"

	"example.org/mta/internal/reply"
)

// content is a message's content as it comes in: it is checked, gets this relay's header fields on top, and is
// written to a Draft. Only the header section is held back, to see what it lacks.
type content struct {
	draft  Draft // nil once the message has been refused
	check  checker
	header header
	top    []byte // this relay's header fields
	held   int64  // octets of Config.Memory
	owner  Owner  // who has them
	cr     bool   // the last octet that came was a CR, which is held back
	ended  bool

	releaseAt time.Time // when it is to be released; zero: at once
	spread    time.Duration
	expires   time.Time // when it is given up whatever its age; zero: never
	asked     []string  // marks of what it asks for

	whole     []byte // of a message that is filtered, until its end
	filtered  bool
	discarded bool // by the filter, after the commit

	meta string // a JSON object, "" for none

	key string      // of keyField, "" for none
	sum *RequestSum // of what the client has sent; nil without a key
}

var crlf = []byte("\r\n")

// open begins the content.
func (m *Message) open() {
	cfg := &m.desk.cfg
	x := m.desk.contents.Get().(*content)
	m.content = x
	x.owner = m.desk.ownerOf(m.client)
	x.draft = cfg.Store.Begin(x.owner, m.Envelope.Size)
	x.check = checker{newlines: m.client.Newlines, maxLine: cfg.Limits.LineLength, endsCRLF: true,
		scratch: x.check.scratch[:0]}
	x.header = header{text: x.header.text[:0], asked: cfg.Marks, names: &cfg.Foreign}
	if len(m.recipients) == 0 {
		m.reject(NoRecipients.Refusal())
		return
	}
	m.holdMemory()
	m.outgrow()
}

// release lets go of the content. What was not committed is dropped.
func (m *Message) release() {
	x := m.content
	if x == nil {
		return
	}
	m.content = nil
	x.abort()
	m.desk.cfg.Memory.Give(x.held, usual(x.owner))
	*x = content{check: checker{scratch: keepSmall(x.check.scratch)},
		header: header{text: keepSmall(x.header.text)}, top: x.top[:0]}
	m.desk.contents.Put(x)
}

// keepSmall lets a buffer be used again unless it has grown beyond what is usual.
func keepSmall(b []byte) []byte {
	if cap(b) > BufferSize {
		return nil
	}
	return b[:0]
}

func (x *content) abort() {
	if x.draft != nil {
		x.draft.Abort()
		x.draft = nil
	}
}

// reject notes why the message can't be accepted. The rest of its content is dropped.
func (m *Message) reject(r *reply.Reply) {
	x := m.content
	m.refused = r
	x.abort()
	m.desk.cfg.Memory.Give(x.held, usual(x.owner))
	x.held, x.header.text, x.header.body, x.whole = 0, nil, nil, nil
}

// Write takes content, in pieces of any size. When the message is refused, the error is the *reply.Reply that
// refuses it, and what is written from then on is dropped.
func (m *Message) Write(p []byte) (int, error) {
	n := len(p)
	m.size += int64(n)
	if m.content == nil {
		m.open()
	}
	if x := m.content; x.cr && n > 0 {
		x.cr = false
		if p[0] == '\n' {
			m.take(crlf)
			p = p[1:]
		} else {
			m.take(crlf[:1])
		}
	}
	if k := len(p); k > 0 && p[k-1] == '\r' { // the checker must see what follows it
		m.content.cr = true
		p = p[:k-1]
	}
	m.take(p)
	if m.refused != nil {
		return n, m.refused
	}
	return n, nil
}

// take checks a piece of content and stores it. A CR may be its last octet only when no LF follows.
func (m *Message) take(b []byte) {
	if m.refused != nil || len(b) == 0 {
		return
	}
	if r := m.desk.Fits(m.size); r != nil {
		m.reject(r)
		return
	}
	if m.outgrow(); m.refused != nil {
		return
	}
	if m.growClaim(); m.refused != nil {
		return
	}
	if m.holdMemory(); m.refused != nil {
		return
	}
	x := m.content
	b = x.check.pass(b)
	if r := x.check.verdict(); r != nil {
		m.reject(r)
		return
	}
	if !x.header.done {
		b = x.header.add(b)
		if m.encodeHeader(); x.header.encoded {
			x.check.eightBit = hasEightBit(x.header.text) || hasEightBit(x.header.body) || hasEightBit(b)
		}
		m.afterHeader(len(b))
	}
	m.keep(b)
}

// End checks what can only be checked when the content is complete, and returns the reply that refuses the
// message, nil when it can be committed. Nothing can be written after it. It can wait for a Filter, and no longer than
// ctx.
func (m *Message) End(ctx context.Context) *reply.Reply {
	if m.content == nil {
		m.open()
	}
	x := m.content
	if x.ended {
		return m.refused
	}
	x.ended = true
	if x.cr {
		m.take(crlf[:1])
	}
	if m.refused == nil && !x.header.done {
		x.header.end()
		if m.encodeHeader(); x.header.encoded {
			x.check.eightBit = hasEightBit(x.header.text) || hasEightBit(x.header.body)
		}
		m.afterHeader(0)
	}
	if !x.check.endsCRLF {
		m.store(crlf) // the content need not end in one, DATA must when the message goes on
	}
	if x.filtered {
		m.filter(ctx)
	}
	return m.refused
}

// afterHeader checks the header section as far as it is known, and once it is complete writes it
// with this relay's fields on top. So many octets of the body are at hand.
func (m *Message) afterHeader(body int) {
	x, h, limits := m.content, &m.content.header, &m.desk.cfg.Limits
	if r := h.verdict(headerLimits{limits.HeaderSize, limits.Hops}); r != nil {
		m.reject(r)
		return
	}
	if !h.done {
		return
	}
	if refused := m.schedule(); refused != nil {
		m.reject(refused)
		return
	}
	if refused := m.readMeta(); refused != nil {
		m.reject(refused)
		return
	}
	if refused := m.readKey(); refused != nil {
		m.reject(refused)
		return
	}
	m.removeFields()
	m.takeTenant()
	m.takeForeign()
	m.checkFrom()
	m.checkSignable()
	m.admitByHeader()
	t := m.trace(h.fields)
	if t.unsubscribe = m.unsubscribeLink(); t.unsubscribe != "" {
		t.needPost = !h.fields.has(FieldListUnsubscribePost)
		h.fields |= 1<<FieldListUnsubscribe | 1<<FieldListUnsubscribePost
	}
	x.top = t.append(x.top[:0])
	filter := m.desk.cfg.Filter
	x.filtered = m.refused == nil && filter != nil && filter.For(m.account.tenant)
	if m.refused == nil && !x.filtered {
		x.draft.Grow(len(x.top) + len(h.text) + len(crlf) + len(h.body) + body)
	}
	m.store(x.top)
	m.keep(h.text)
	if len(h.body) > 0 || len(h.text) == 0 {
		m.store(crlf) // there was no blank line to end the section
	}
	m.keep(h.body)
}

// unsubscribeLink gives the link that the message gets, "" for none. One with several recipients gets none: all
// see the same header, and a link could not say who of them unsubscribes.
func (m *Message) unsubscribeLink() string {
	cfg := &m.desk.cfg
	if cfg.Unsubscribe == nil || len(m.recipients) != 1 || m.Sender.Null() || m.account.tenant == "" ||
		m.content.header.fields.has(FieldListUnsubscribe) {
		return ""
	}
	return cfg.Unsubscribe(m.account.tenant, m.campaign(), m.recipients[0].Address)
}

// encodeHeader makes a complete header section UTF-8.
func (m *Message) encodeHeader() {
	h := &m.content.header
	if !h.done || !h.nonUTF8 {
		return
	}
	h.text, h.nonUTF8, h.encoded = encodeHeader(h.text), false, true
}

// trace makes this relay's fields for a message that has some.
func (m *Message) trace(fields Fields) trace {
	c, cfg := m.client, &m.desk.cfg
	t := trace{
		hostname: cfg.Hostname, helo: m.helo, peer: c.Peer, protocol: m.protocol, tls: c.overTLS(),
		id: m.id, time: cfg.Now(), needDate: !fields.has(FieldDate), needID: !fields.has(FieldMessageID),
	}
	if len(m.recipients) == 1 {
		t.only = m.recipients[0].Address
	}
	return t
}

// keep stores what the client has sent.
func (m *Message) keep(b []byte) {
	if x := m.content; x.sum != nil {
		x.sum.Write(b)
	}
	m.store(b)
}

// store writes to the draft.
func (m *Message) store(b []byte) {
	if m.refused != nil || len(b) == 0 {
		return
	}
	if m.content.filtered {
		m.content.whole = append(m.content.whole, b...)
		return
	}
	if _, err := m.content.draft.Write(b); err != nil {
		m.reject(m.storeTrouble("writing message", err))
	}
}

// storeTrouble makes a reply of an error of the store. It is logged for debugging only: a disk that
// is full fails for each message, and the store's owner logs when that begins and ends.
func (m *Message) storeTrouble(step string, err error) *reply.Reply {
	m.desk.cfg.Log.Debug(step, "session", m.client.Session, "transaction", m.id, "err", err)
	return StoreReply(err)
}

// StoreReply gives a client the class of the store's trouble. Our own trouble is never a 5xx.
func StoreReply(err error) *reply.Reply {
	var d interface{ DiskFull() bool }
	if errors.As(err, &d) && d.DiskFull() {
		return diskFull.Refusal()
	}
	return storeFailed.Refusal()
}
