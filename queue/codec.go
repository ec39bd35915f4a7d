package queue

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/format"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/tiers"
	"example.org/mta/queue/journal"
	"example.org/mta/queue/schedule"
)

// The kinds of records in the journal.
const (
	kindOpened   journal.Kind = 1 + iota // begins a segment: what came before it
	kindAccepted                         // a message: envelope, content
	kindSettled                          // recipients with a final outcome
	kindDeferred                         // recipients that wait: until when, attempts, last reply
	kindChanged                          // recipients that an operator, or a warning, marked
	kindMoved                            // a message that compaction carried on, or another queue handed over, with all its states
	kindBuried                           // places in another segment whose messages are settled
	kindSynced                           // all before it in the segment had been synced when it was written
	kindKeyed                            // what became of a request that had a key
)

var kindNames = map[journal.Kind]string{
	kindOpened: "opened", kindAccepted: "accepted", kindSettled: "settled", kindDeferred: "deferred",
	kindChanged: "changed", kindMoved: "moved", kindBuried: "buried", kindSynced: "synced", kindKeyed: "keyed",
}

// Every payload begins with the version of its form. Older ones down to oldestVersion are read; one that
// is not known ends the start.
//
//	3  deferred, changed and moved records have the time at which they were written, opened ones marks
//	4  accepted and moved records have their id and sums of their own before the content; synced records
//	5  opened records have by how much the clock had jumped ahead, and until when ages are in doubt
//	6  envelopes can have who had logged in
//	7  envelopes can have what their second octet of flags announces, and changed records a release
//	8  envelopes can have copies of header fields, and a trace id
//	9  last attempts have a detour
const (
	oldestVersion = 2
	ownSums       = 4
	withHeaders   = 8
	withDetours   = 9
	codecVersion  = 9
)

// Format is what this program knows of a queue's formats. A format is the newest version that a record can have. The last
// program that stated none wrote version 7.
var Format = format.Store{Name: "queue", Vital: true, Reads: 7, Writes: codecVersion, Unstated: 7}

// form is the version to write records in.
func (q *Queue) form() uint8 {
	if q.cfg.Format == nil {
		return codecVersion
	}
	return uint8(q.cfg.Format())
}

// maxRecipients is how many recipients a message can have.
const maxRecipients = 1<<16 - 1

var errShort = errors.New("record is shorter than it says")

// formatError is a record that is whole and that this program doesn't understand. It is a format.ErrRefused.
type formatError struct {
	file string // "" where it is not known
	off  int64
	kind journal.Kind
	form uint8 // its version; 0 when it is the kind that is not known
	more bool  // it is the envelope's flags that are not known
}

func (e *formatError) Error() string {
	where := ""
	if e.file != "" {
		where = fmt.Sprintf("%s: offset %d: ", e.file, e.off)
	}
	switch {
	case e.form == 0:
		return fmt.Sprintf("%sa record of kind %d, which this program does not know: a newer one has written it; start that one", where, e.kind)
	case e.more:
		return fmt.Sprintf("%san envelope with fields that this program does not know: a newer one has written it; start that one", where)
	case e.form < oldestVersion:
		return fmt.Sprintf("%sa record (%s) of version %d, which only versions of mta before 0.1.0 read, and this program reads %d to %d: deliver that mail with the program that has written it",
			where, cmp.Or(kindNames[e.kind], "any kind"), e.form, oldestVersion, codecVersion)
	}
	return fmt.Sprintf("%sa record (%s) of version %d, and this program knows %d to %d: a newer one has written it; start that one",
		where, cmp.Or(kindNames[e.kind], "any kind"), e.form, oldestVersion, codecVersion)
}

// Is reports whether other is format.ErrRefused.
func (e *formatError) Is(other error) bool { return other == format.ErrRefused }

// encoder appends fields to b.
type encoder struct {
	b    []byte
	form uint8 // the version
}

func (e *encoder) byte(v uint8)    { e.b = append(e.b, v) }
func (e *encoder) uint(v uint64)   { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)     { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) string(v string) { e.uint(uint64(len(v))); e.b = append(e.b, v...) }
func (e *encoder) strings(all []string) {
	e.uint(uint64(len(all)))
	for _, v := range all {
		e.string(v)
	}
}

func (e *encoder) reply(r reply.Reply) {
	e.uint(uint64(r.Code))
	for _, n := range r.Enhanced {
		e.uint(uint64(n))
	}
	e.bool(r.Local)
	e.string(r.Command)
	e.string(r.Text)
}

func (e *encoder) bool(v bool) {
	if v {
		e.byte(1)
	} else {
		e.byte(0)
	}
}

// decoder reads fields from s and remembers the first error; after it all fields are zero.
// Strings are parts of s.
type decoder struct {
	s    string
	err  error
	form uint8 // the version
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.s = ""
}

func (d *decoder) version() {
	if d.form = d.byte(); d.err == nil {
		if err := checkVersion(d.form); err != nil {
			d.fail(err)
		}
	}
}

func checkVersion(form uint8) error {
	if form < oldestVersion || form > codecVersion {
		return &formatError{form: form}
	}
	return nil
}

// written reads when a record was written, 0 where its version does not have that.
func (d *decoder) written() uint32 {
	if d.form < 3 {
		return 0
	}
	return uint32(d.uint())
}

func (d *decoder) byte() uint8 {
	if d.s == "" {
		d.fail(errShort)
		return 0
	}
	v := d.s[0]
	d.s = d.s[1:]
	return v
}

func (d *decoder) bool() bool { return d.byte() != 0 }

func (d *decoder) uint() uint64 {
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		b := d.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	d.fail(errShort)
	return 0
}

func (d *decoder) int() int64 {
	v := d.uint()
	return int64(v>>1) ^ -int64(v&1)
}

// count reads a number of things that take each octets or more, so that a wrong one can't make
// us take memory.
func (d *decoder) count(each int) int {
	n := d.uint()
	if n > uint64(len(d.s)/each) {
		d.fail(errShort)
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.count(1)
	v := d.s[:n]
	d.s = d.s[n:]
	return v
}

func (d *decoder) strings() []string {
	all := make([]string, d.count(1))
	for i := range all {
		all[i] = d.string()
	}
	return all
}

func (d *decoder) reply() reply.Reply {
	var r reply.Reply
	r.Code = int(uint16(d.uint()))
	for i := range r.Enhanced {
		r.Enhanced[i] = uint16(d.uint())
	}
	r.Local = d.bool()
	r.Command, r.Text = d.string(), d.string()
	return r
}

const (
	flagUTF8 = 1 << iota
	flagRequireTLS
	flagReceived
	flagScheduled
	flagMarks
	flagUser
	flagTLSOptional
	flagMore // a second octet of flags follows
)

// The second octet of flags: what few messages have.
const (
	moreExpires = 1 << iota
	moreTags
	moreMeta
	morePool
	moreAPIKey
	moreHeaders
	moreTrace
	moreKnown = 1<<iota - 1
)

// moreOf gives the second octet of a message's flags. A former format leaves out what it doesn't know.
func moreOf(m *envelope.Message, form uint8) (more uint8) {
	for _, f := range [...]struct {
		bit uint8
		is  bool
	}{
		{moreExpires, !m.Expires.IsZero()}, {moreTags, len(m.Tags) > 0}, {moreMeta, m.Meta != ""}, {morePool, m.Pool != ""},
		{moreAPIKey, m.APIKey != ""}, {moreHeaders, m.Headers != ""}, {moreTrace, m.TraceID != ""},
	} {
		if f.is {
			more |= f.bit
		}
	}
	if form < withHeaders {
		more &^= moreHeaders | moreTrace
	}
	return more
}

// flagsOf gives the first octet of flags; more is the second.
func flagsOf(m *envelope.Message, more uint8) (flags uint8) {
	for _, f := range [...]struct {
		bit uint8
		is  bool
	}{
		{flagUTF8, m.UTF8}, {flagRequireTLS, m.RequireTLS}, {flagTLSOptional, m.TLSOptional}, {flagReceived, !m.Received.IsZero()},
		{flagScheduled, !m.Release.IsZero()}, {flagMarks, len(m.Marks) > 0}, {flagUser, m.User != ""}, {flagMore, more != 0},
	} {
		if f.is {
			flags |= f.bit
		}
	}
	return flags
}

// appendEnvelope appends all of m but ID and Size, which the record has elsewhere.
func appendEnvelope(b []byte, form uint8, m *envelope.Message) []byte {
	e := encoder{b, form}
	e.byte(form)
	more := moreOf(m, form)
	flags := flagsOf(m, more)
	e.byte(flags)
	if more != 0 {
		e.byte(more)
	}
	e.byte(uint8(m.Body))
	e.byte(uint8(m.Ret))
	e.byte(m.Tier)
	if flags&flagReceived != 0 {
		e.int(m.Received.UnixNano())
	}
	if flags&flagScheduled != 0 {
		plan := planOf(m)
		e.uint(uint64(plan.release))
		e.uint(uint64(plan.spread))
	}
	if more&moreExpires != 0 {
		e.uint(uint64(secondsOf(m.Expires)))
	}
	e.string(string(m.Sender))
	e.string(m.EnvID)
	e.string(m.Tenant)
	e.string(m.Campaign)
	peer, _ := m.Peer.AppendBinary(nil) // has no errors to give
	e.string(string(peer))
	e.string(m.HeloName)
	e.string(m.Session)
	e.string(m.Protocol)
	e.uint(uint64(len(m.Recipients)))
	for i := range m.Recipients {
		r := &m.Recipients[i]
		e.string(string(r.Address))
		e.byte(uint8(r.Notify))
		e.string(r.ORcpt)
	}
	if flags&flagMarks != 0 {
		e.strings(m.Marks)
	}
	if flags&flagUser != 0 {
		e.string(m.User)
	}
	e.more(m, more)
	return e.b
}

// more appends what the second octet of flags announces, except for the times.
func (e *encoder) more(m *envelope.Message, more uint8) {
	if more&moreTags != 0 {
		e.strings(m.Tags)
	}
	if more&moreMeta != 0 {
		e.string(m.Meta)
	}
	if more&morePool != 0 {
		e.string(m.Pool)
	}
	if more&moreAPIKey != 0 {
		e.string(m.APIKey)
	}
	if more&moreHeaders != 0 {
		e.string(m.Headers)
	}
	if more&moreTrace != 0 {
		e.string(m.TraceID)
	}
}

// more is the inverse of encoder.more.
func (d *decoder) more(m *envelope.Message, more uint8) {
	if more&moreTags != 0 {
		m.Tags = d.strings()
	}
	if more&moreMeta != 0 {
		m.Meta = d.string()
	}
	if more&morePool != 0 {
		m.Pool = d.string()
	}
	if more&moreAPIKey != 0 {
		m.APIKey = d.string()
	}
	if more&moreHeaders != 0 {
		m.Headers = d.string()
	}
	if more&moreTrace != 0 {
		m.TraceID = d.string()
	}
}

// decodeEnvelope is the inverse of appendEnvelope.
func decodeEnvelope(b []byte) (*envelope.Message, error) {
	d := decoder{s: string(b)}
	d.version()
	m := &envelope.Message{}
	flags, more := d.times(m)
	m.Sender = envelope.Address(d.string())
	m.EnvID, m.Tenant, m.Campaign = d.string(), d.string(), d.string()
	if peer := d.string(); peer != "" {
		if err := m.Peer.UnmarshalBinary([]byte(peer)); err != nil {
			d.fail(fmt.Errorf("peer address: %w", err))
		}
	}
	m.HeloName, m.Session, m.Protocol = d.string(), d.string(), d.string()
	n := d.count(3)
	if n > maxRecipients {
		d.fail(errShort)
		n = 0
	}
	m.Recipients = make([]envelope.Recipient, n)
	for i := range m.Recipients {
		m.Recipients[i] = envelope.Recipient{Address: envelope.Address(d.string()), Notify: envelope.Notify(d.byte()), ORcpt: d.string()}
	}
	if flags&flagMarks != 0 {
		m.Marks = d.strings()
	}
	if flags&flagUser != 0 {
		m.User = d.string()
	}
	d.more(m, more)
	if d.err == nil && d.s != "" {
		d.fail(errors.New("envelope is followed by octets that it does not account for"))
	}
	if d.err != nil {
		return nil, d.err
	}
	return m, nil
}

// checkEnvelope returns a formatError for an envelope that another version of this program has written.
func checkEnvelope(env []byte) error {
	d := decoder{s: string(env[:min(len(env), maxTimes)])}
	d.version()
	d.times(new(envelope.Message))
	if odd := (*formatError)(nil); errors.As(d.err, &odd) {
		return odd
	}
	return nil
}

// times reads what an envelope begins with, up to where the addresses begin, and gives its flags.
func (d *decoder) times(m *envelope.Message) (flags, more uint8) {
	if flags = d.byte(); flags&flagMore != 0 {
		if more = d.byte(); more&^moreKnown != 0 {
			d.fail(&formatError{form: d.form, more: true})
		}
	}
	m.UTF8, m.RequireTLS, m.TLSOptional = flags&flagUTF8 != 0, flags&flagRequireTLS != 0, flags&flagTLSOptional != 0
	m.Body, m.Ret, m.Tier = envelope.BodyType(d.byte()), envelope.Ret(d.byte()), d.byte()
	if flags&flagReceived != 0 {
		m.Received = time.Unix(0, d.int()).UTC()
	}
	if flags&flagScheduled != 0 {
		m.Release = time.Unix(int64(uint32(d.uint())), 0).UTC()
		m.Spread = time.Duration(uint32(d.uint())) * time.Second
	}
	if more&moreExpires != 0 {
		m.Expires = time.Unix(int64(uint32(d.uint())), 0).UTC()
	}
	return flags, more
}

// times is what the schedule must know of an envelope.
type times struct {
	received time.Time
	plan     plan
	expires  uint32 // seconds since 1970; 0: by age alone
	tier     uint8
}

// decodeTimes reads of an envelope only its times. Of one that can't be read there are none: whoever is
// handed it finds out, and keeps it as unreadable.
func decodeTimes(env []byte) times {
	d := decoder{s: string(env[:min(len(env), maxTimes)])}
	d.version()
	var m envelope.Message
	if d.times(&m); d.err != nil {
		return times{tier: unknownTier}
	}
	return times{m.Received, planOf(&m), expiryOf(&m), tiers.Of(m.Tier)}
}

// decodeOrigin reads of an envelope only where the message is from, and calls each with the domains of its recipients,
// in order. It reports false for one that can't be read: as far as it can, it gives what stands before that.
func decodeOrigin(env []byte, each func(recipient int, domain string)) (o schedule.Origin, ok bool) {
	d := decoder{s: string(env)}
	d.version()
	var m envelope.Message
	d.times(&m)
	sender := envelope.Address(d.string())
	_ = d.string()
	o.Tenant, o.Campaign = d.string(), d.string()
	for range 4 { // peer, HELO name, session, protocol
		_ = d.string()
	}
	n := d.count(3)
	for i := range n {
		address := envelope.Address(d.string())
		_, _ = d.byte(), d.string()
		if d.err == nil {
			each(i, address.Domain())
		}
	}
	o.Sender = sender.Domain()
	return o, d.err == nil
}

// maxTimes is the most that an envelope can have before the addresses, in octets.
const maxTimes = 6 + 4*10

// prelude begins the payload of accepted and moved records. Envelope and states follow it, and
// then the content, unless that has its own file.
type prelude struct {
	form     uint8  // the version
	rcpts    uint16 // how many the envelope has
	envLen   uint32
	envCRC   uint32 // so that the envelope can be read without the content
	stateLen uint32 // moved records only
	large    uint64 // number of the content's own file, 0 when it is in the record
	bodyLen  int64
	bodyCRC  uint32 // of the content in its own file; the record's sum covers it otherwise
	stateCRC uint32 // of the states
	id       uint64 // of the message, since the record's header may be what is broken
}

// The size of a prelude; that of older versions ends before stateCRC.
const preludeSize, oldPreludeSize = 52, 36

func (p *prelude) size() int {
	if p.form < ownSums {
		return oldPreludeSize
	}
	return preludeSize
}

// put writes all but the id, which sign adds.
func (p *prelude) put(b []byte) {
	le := binary.LittleEndian
	b[0], b[1] = p.form, 0
	le.PutUint32(b[36:], p.stateCRC)
	le.PutUint16(b[2:], p.rcpts)
	le.PutUint32(b[4:], p.envLen)
	le.PutUint32(b[8:], p.envCRC)
	le.PutUint32(b[12:], p.stateLen)
	le.PutUint64(b[16:], p.large)
	le.PutUint64(b[24:], uint64(p.bodyLen))
	le.PutUint32(b[32:], p.bodyCRC)
}

// sign completes a prelude: with the id, and the sum of all that is in it.
func sign(b []byte, id uint64) {
	le := binary.LittleEndian
	le.PutUint64(b[40:], id)
	le.PutUint32(b[48:], journal.Checksum(0, b[:48]))
}

// signed reports whether a prelude's own sum, which b begins with, is right.
func (p *prelude) signed(b []byte) bool {
	return p.form >= ownSums && journal.Checksum(0, b[:48]) == binary.LittleEndian.Uint32(b[48:])
}

func parsePrelude(b []byte) (prelude, error) {
	if len(b) < oldPreludeSize || b[0] >= ownSums && len(b) < preludeSize {
		return prelude{}, errShort
	}
	if err := checkVersion(b[0]); err != nil {
		return prelude{}, err
	}
	le := binary.LittleEndian
	p := prelude{
		form: b[0], rcpts: le.Uint16(b[2:]), envLen: le.Uint32(b[4:]), envCRC: le.Uint32(b[8:]), stateLen: le.Uint32(b[12:]),
		large: le.Uint64(b[16:]), bodyLen: int64(le.Uint64(b[24:])), bodyCRC: le.Uint32(b[32:]),
	}
	if p.bodyLen < 0 {
		return prelude{}, errShort
	}
	if p.form >= ownSums {
		p.stateCRC, p.id = le.Uint32(b[36:]), le.Uint64(b[40:])
	}
	return p, nil
}

// content is the payload of an accepted or moved record, taken apart.
type content struct {
	prelude
	env, states, body []byte
}

func parseContent(payload []byte) (content, error) {
	p, err := parsePrelude(payload)
	if err != nil {
		return content{}, err
	}
	c := content{prelude: p}
	rest := payload[p.size():]
	if uint64(len(rest)) < uint64(p.envLen)+uint64(p.stateLen) {
		return content{}, errShort
	}
	c.env, rest = rest[:p.envLen], rest[p.envLen:]
	c.states, c.body = rest[:p.stateLen], rest[p.stateLen:]
	want := p.bodyLen
	if p.large != 0 {
		want = 0
	}
	if int64(len(c.body)) != want {
		return content{}, errShort
	}
	return c, nil
}

// marks are what stays with a recipient whatever it waits for.
type marks uint8

const (
	markHeld marks = 1 << iota
	markWarned
	markBounce
	markRemove
	markCancel   // with markRemove: for its sender
	markTransfer // with markRemove: another relay has it; earlier programs know it as removed
)

// recipientState is one recipient of a moved record.
type recipientState struct {
	rcpt     uint16
	attempts uint16
	due      uint32
	marks    marks
	key      string
	replied  bool
	last     Attempt
}

// appendStates appends the states of a moved record, as they are at a time. A reply and a key that are
// the same as the one before, as most are, take an octet.
func appendStates(b []byte, form uint8, at uint32, states []recipientState) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.uint(uint64(at))
	e.uint(uint64(len(states)))
	for i := range states {
		s := &states[i]
		e.uint(uint64(s.rcpt))
		e.uint(uint64(s.attempts))
		e.uint(uint64(s.due))
		e.byte(uint8(s.marks))
		same := i > 0 && s.key == states[i-1].key && s.replied == states[i-1].replied && s.last == states[i-1].last
		switch {
		case same:
			e.byte(2)
			continue
		case s.replied:
			e.byte(1)
		default:
			e.byte(0)
		}
		e.string(s.key)
		if s.replied {
			e.attempt(s.last)
		}
	}
	return e.b
}

func decodeStates(b []byte) (at uint32, _ []recipientState, _ error) {
	d := decoder{s: string(b)}
	d.version()
	at = d.written()
	states := make([]recipientState, d.count(5))
	for i := range states {
		s := &states[i]
		s.rcpt, s.attempts, s.due = uint16(d.uint()), uint16(d.uint()), uint32(d.uint())
		s.marks = marks(d.byte())
		switch d.byte() {
		case 2:
			if i == 0 {
				d.fail(errShort)
				break
			}
			prev := &states[i-1]
			s.key, s.replied, s.last = prev.key, prev.replied, prev.last
		case 1:
			s.key, s.replied = d.string(), true
			s.last = d.attempt()
		default:
			s.key = d.string()
		}
	}
	if d.err == nil && d.s != "" {
		d.fail(errShort)
	}
	return at, states, d.err
}

func (e *encoder) attempt(a Attempt) {
	e.reply(a.Reply)
	e.string(a.Via)
	if e.form >= withDetours {
		e.string(a.Detour.Pool)
		e.string(a.Detour.Route)
	}
}

func (d *decoder) attempt() Attempt {
	a := Attempt{Reply: d.reply(), Via: d.string()}
	if d.form >= withDetours {
		a.Detour = envelope.Detour{Pool: d.string(), Route: d.string()}
	}
	return a
}

// appendSettled makes the payload of a settled record. Recipients are in ascending order.
func appendSettled(b []byte, form uint8, o Outcome, rcpts []uint16) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.byte(uint8(o))
	e.recipients(rcpts)
	return e.b
}

func (e *encoder) recipients(rcpts []uint16) {
	e.uint(uint64(len(rcpts)))
	last := uint16(0)
	for _, r := range rcpts {
		e.uint(uint64(r - last))
		last = r
	}
}

func (d *decoder) recipients(f func(uint16)) {
	last := uint16(0)
	for range d.count(1) {
		last += uint16(d.uint())
		if d.err == nil {
			f(last)
		}
	}
}

func decodeSettled(b []byte, f func(uint16)) (Outcome, error) {
	d := decoder{s: string(b)}
	d.version()
	o := Outcome(d.byte())
	d.recipients(f)
	return o, d.err
}

// deferral is the payload of a deferred record.
type deferral struct {
	at       uint32 // when it was written; 0 in old ones
	due      uint32
	key      string
	last     Attempt
	rcpts    []uint16
	attempts []uint16 // of each of rcpts
}

func appendDeferral(b []byte, form uint8, f *deferral) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.uint(uint64(f.at))
	e.uint(uint64(f.due))
	e.string(f.key)
	e.attempt(f.last)
	e.recipients(f.rcpts)
	for _, n := range f.attempts {
		e.uint(uint64(n))
	}
	return e.b
}

func decodeDeferral(b []byte) (deferral, error) {
	d := decoder{s: string(b)}
	d.version()
	var f deferral
	f.at = d.written()
	f.due = uint32(d.uint())
	f.key = d.string()
	f.last = d.attempt()
	d.recipients(func(r uint16) { f.rcpts = append(f.rcpts, r) })
	for range f.rcpts {
		f.attempts = append(f.attempts, uint16(d.uint()))
	}
	return f, d.err
}

// change is the payload of a changed record: what the marks of recipients are now and, unless it
// is 0, when they are due.
type change struct {
	at      uint32 // when it was written; 0 in old ones
	due     uint32
	marks   marks
	rcpts   []uint16
	release uint32 // of their message, from now on; 0: as before
}

func appendChange(b []byte, form uint8, c *change) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.uint(uint64(c.at))
	e.uint(uint64(c.due))
	e.byte(uint8(c.marks))
	e.recipients(c.rcpts)
	if c.release != 0 {
		e.uint(uint64(c.release))
	}
	return e.b
}

func decodeChange(b []byte) (change, error) {
	d := decoder{s: string(b)}
	d.version()
	c := change{at: d.written(), due: uint32(d.uint()), marks: marks(d.byte())}
	d.recipients(func(r uint16) { c.rcpts = append(c.rcpts, r) })
	if d.form >= 7 && d.s != "" {
		c.release = uint32(d.uint())
	}
	return c, d.err
}

// opening is the payload of an opened record.
type opening struct {
	// ends says of the segments before that may have octets behind what was synced where that
	// ends: what is behind is void.
	ends      []segmentEnd
	lastID    uint64 // the largest id given out so far
	allocated int64  // octets that the file was made with; a shorter one was trimmed
	created   time.Time
	marks     []schedule.Arrival // what was accepted up to an id was so by a time, see arrivals
	doubted   time.Time          // until when ages were in doubt, see clockWatch; the zero time when they were not
	ahead     time.Duration      // by how much the clock had jumped ahead then
}

type segmentEnd struct {
	number uint32
	end    int64 // octets
}

func appendOpening(b []byte, form uint8, o opening) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.uint(uint64(len(o.ends)))
	for _, x := range o.ends {
		e.uint(uint64(x.number))
		e.uint(uint64(x.end))
	}
	e.uint(o.lastID)
	e.uint(uint64(o.allocated))
	e.int(o.created.UnixNano())
	e.uint(uint64(len(o.marks)))
	for _, m := range o.marks {
		e.uint(m.ID)
		e.int(m.At)
	}
	e.uint(uint64(secondsSince1970(o.doubted)))
	e.uint(uint64(o.ahead / time.Second))
	return e.b
}

func decodeOpening(b []byte) (opening, error) {
	d := decoder{s: string(b)}
	d.version()
	var o opening
	for range d.count(2) {
		x := segmentEnd{number: uint32(d.uint()), end: int64(d.uint())}
		if x.end < 0 {
			d.fail(errShort)
		}
		o.ends = append(o.ends, x)
	}
	o.lastID, o.allocated = d.uint(), int64(d.uint())
	o.created = time.Unix(0, d.int()).UTC()
	if d.form >= 3 {
		for range d.count(2) {
			o.marks = append(o.marks, schedule.Arrival{ID: d.uint(), At: d.int()})
		}
	}
	if d.form >= 5 {
		o.doubted = time.Unix(int64(uint32(d.uint())), 0)
		o.ahead = time.Duration(uint32(d.uint())) * time.Second
	}
	return o, d.err
}

// burial is the payload of a buried record: the places, as stretches of a segment, at which
// every message is settled.
type burial struct {
	segment   uint32
	stretches []stretch
}

// stretch is a part of a segment, in octets; to is not in it.
type stretch struct{ from, to int64 }

func appendBurial(b []byte, form uint8, g *burial) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.uint(uint64(g.segment))
	e.uint(uint64(len(g.stretches)))
	at := int64(0)
	for _, s := range g.stretches {
		e.uint(uint64(s.from-at) / journal.Align)
		e.uint(uint64(s.to-s.from) / journal.Align)
		at = s.to
	}
	return e.b
}

func decodeBurial(b []byte) (burial, error) {
	d := decoder{s: string(b)}
	d.version()
	g := burial{segment: uint32(d.uint())}
	at := int64(0)
	for range d.count(2) {
		from := at + int64(uint32(d.uint()))*journal.Align
		at = from + int64(uint32(d.uint()))*journal.Align
		g.stretches = append(g.stretches, stretch{from, at})
	}
	return g, d.err
}
