package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/format"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/queue/schedule"
)

// The kinds of records in the journal.
const (
	KindOpened   Kind = 1 + iota // begins a segment: what came before it
	KindAccepted                 // a message: envelope, content
	KindSettled                  // recipients with a final outcome
	KindDeferred                 // recipients that wait: until when, attempts, last reply
	KindChanged                  // recipients that an operator, or a warning, marked
	// a message that compaction carried on, or another queue handed over, with all its states
	KindMoved
	KindBuried // places in another segment whose messages are settled
	KindSynced // all before it in the segment had been synced when it was written
	KindKeyed  // what became of a request that had a key
)

// KindNames are the words for the kinds of records.
var KindNames = map[Kind]string{
	KindOpened: "opened", KindAccepted: "accepted", KindSettled: "settled", KindDeferred: "deferred",
	KindChanged: "changed", KindMoved: "moved", KindBuried: "buried", KindSynced: "synced", KindKeyed: "keyed",
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
//	10 opened records have the numbers of the segments that there are
const (
	oldestVersion = 2
	ownSums       = 4
	withHeaders   = 8
	WithDetours   = 9
	withNumbers   = 10
	CodecVersion  = 10
)

// Format is what this program knows of a queue's formats. A format is the newest version that a record can have. The
// last program that stated none wrote version 7.
var Format = format.Store{Name: "queue", Vital: true, Reads: 7, Writes: CodecVersion, Unstated: 7}

// MaxRecipients is how many recipients a message can have.
const MaxRecipients = 1<<16 - 1

var errShort = errors.New("record is shorter than it says")

// FormatError is a record that is whole and that this program doesn't understand. It is a format.ErrRefused.
type FormatError struct {
	file string // "" where it is not known
	off  int64
	kind Kind
	form uint8 // its version; 0 when it is the kind that is not known
	more bool  // it is the envelope's flags that are not known
}

// Error names the place, and the program that reads the record.
func (e *FormatError) Error() string {
	where := ""
	if e.file != "" {
		where = fmt.Sprintf("%s: offset %d: ", e.file, e.off)
	}
	switch {
	case e.form == 0:
		return fmt.Sprintf(
			"%sa record of kind %d, which this program does not know: a newer one has written it; start that one",
			where, e.kind)
	case e.more:
		return fmt.Sprintf(
			"%san envelope with fields that this program does not know: a newer one has written it; start that one",
			where)
	case e.form < oldestVersion:
		return fmt.Sprintf(
			"%sa record (%s) of version %d, which only versions of mta before 0.1.0 read, and this program reads %d "+
				"to %d: deliver that mail with the program that has written it",
			where, cmp.Or(KindNames[e.kind], "any kind"), e.form, oldestVersion, CodecVersion)
	}
	return fmt.Sprintf(
		"%sa record (%s) of version %d, and this program knows %d to %d: a newer one has written it; start that one",
		where, cmp.Or(KindNames[e.kind], "any kind"), e.form, oldestVersion, CodecVersion)
}

// Is reports whether other is format.ErrRefused.
func (e *FormatError) Is(other error) bool { return other == format.ErrRefused }

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

func (e *encoder) bool(v bool) { e.byte(flag(1, v)) }

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
	if form < oldestVersion || form > CodecVersion {
		return &FormatError{form: form}
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
	MoreAPIKey
	moreHeaders
	moreTrace
	MoreKnown = 1<<iota - 1
)

// moreStrings are the texts that the second octet of flags announces, in the order in which they follow the tags.
var moreStrings = [...]struct {
	bit uint8
	of  func(*envelope.Message) *string
}{
	{moreMeta, func(m *envelope.Message) *string { return &m.Meta }},
	{morePool, func(m *envelope.Message) *string { return &m.Pool }},
	{MoreAPIKey, func(m *envelope.Message) *string { return &m.APIKey }},
	{moreHeaders, func(m *envelope.Message) *string { return &m.Headers }},
	{moreTrace, func(m *envelope.Message) *string { return &m.TraceID }},
}

// moreOf gives the second octet of a message's flags. A former format leaves out what it doesn't know.
func moreOf(m *envelope.Message, form uint8) uint8 {
	more := flag(moreExpires, !m.Expires.IsZero()) | flag(moreTags, len(m.Tags) > 0)
	for _, t := range moreStrings {
		more |= flag(t.bit, *t.of(m) != "")
	}
	if form < withHeaders {
		more &^= moreHeaders | moreTrace
	}
	return more
}

// flagsOf gives the first octet of flags; more is the second.
func flagsOf(m *envelope.Message, more uint8) uint8 {
	return flag(flagUTF8, m.UTF8) | flag(flagRequireTLS, m.RequireTLS) | flag(flagTLSOptional, m.TLSOptional) |
		flag(flagReceived, !m.Received.IsZero()) | flag(flagScheduled, !m.Release.IsZero()) |
		flag(flagMarks, len(m.Marks) > 0) | flag(flagUser, m.User != "") | flag(flagMore, more != 0)
}

func flag(bit uint8, on bool) uint8 {
	if on {
		return bit
	}
	return 0
}

// AppendEnvelope appends all of m but ID and Size, which the record has elsewhere.
func AppendEnvelope(b []byte, form uint8, m *envelope.Message) []byte {
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
		plan := PlanOf(m)
		e.uint(uint64(plan.Release))
		e.uint(uint64(plan.spread))
	}
	if more&moreExpires != 0 {
		e.uint(uint64(SecondsOf(m.Expires)))
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
	for _, t := range moreStrings {
		if more&t.bit != 0 {
			e.string(*t.of(m))
		}
	}
}

// more is the inverse of encoder.more.
func (d *decoder) more(m *envelope.Message, more uint8) {
	if more&moreTags != 0 {
		m.Tags = d.strings()
	}
	for _, t := range moreStrings {
		if more&t.bit != 0 {
			*t.of(m) = d.string()
		}
	}
}

// DecodeEnvelope is the inverse of appendEnvelope.
func DecodeEnvelope(b []byte) (*envelope.Message, error) {
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
	if n > MaxRecipients {
		d.fail(errShort)
		n = 0
	}
	m.Recipients = make([]envelope.Recipient, n)
	for i := range m.Recipients {
		m.Recipients[i] = envelope.Recipient{Address: envelope.Address(d.string()), Notify: envelope.Notify(d.byte()),
			ORcpt: d.string()}
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

// CheckEnvelope returns a formatError for an envelope that another version of this program has written.
func CheckEnvelope(env []byte) error {
	d := decoder{s: string(env[:min(len(env), maxTimes)])}
	d.version()
	d.times(new(envelope.Message))
	if odd := (*FormatError)(nil); errors.As(d.err, &odd) {
		return odd
	}
	return nil
}

// times reads what an envelope begins with, up to where the addresses begin, and gives its flags.
func (d *decoder) times(m *envelope.Message) (flags, more uint8) {
	if flags = d.byte(); flags&flagMore != 0 {
		if more = d.byte(); more&^MoreKnown != 0 {
			d.fail(&FormatError{form: d.form, more: true})
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
	plan     Plan
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
		return times{tier: UnknownTier}
	}
	return times{m.Received, PlanOf(&m), ExpiryOf(&m), envelope.TierOf(m.Tier)}
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

// Prelude begins the payload of accepted and moved records. Envelope and states follow it, and
// then the content, unless that has its own file.
type Prelude struct {
	Form     uint8  // the version
	Rcpts    uint16 // how many the envelope has
	EnvLen   uint32
	EnvCRC   uint32 // so that the envelope can be read without the content
	StateLen uint32 // moved records only
	Large    uint64 // number of the content's own file, 0 when it is in the record
	BodyLen  int64
	BodyCRC  uint32 // of the content in its own file; the record's sum covers it otherwise
	StateCRC uint32 // of the states
	id       uint64 // of the message, since the record's header may be what is broken
}

// The size of a prelude; that of older versions ends before stateCRC.
const PreludeSize, oldPreludeSize = 52, 36

func (p *Prelude) size() int {
	if p.Form < ownSums {
		return oldPreludeSize
	}
	return PreludeSize
}

// Put writes all but the id, which sign adds.
func (p *Prelude) Put(b []byte) {
	le := binary.LittleEndian
	b[0], b[1] = p.Form, 0
	le.PutUint32(b[36:], p.StateCRC)
	le.PutUint16(b[2:], p.Rcpts)
	le.PutUint32(b[4:], p.EnvLen)
	le.PutUint32(b[8:], p.EnvCRC)
	le.PutUint32(b[12:], p.StateLen)
	le.PutUint64(b[16:], p.Large)
	le.PutUint64(b[24:], uint64(p.BodyLen))
	le.PutUint32(b[32:], p.BodyCRC)
}

// Sign completes a prelude: with the id, and the sum of all that is in it.
func Sign(b []byte, id uint64) {
	le := binary.LittleEndian
	le.PutUint64(b[40:], id)
	le.PutUint32(b[48:], Checksum(0, b[:48]))
}

// signed reports whether a prelude's own sum, which b begins with, is right.
func (p *Prelude) signed(b []byte) bool {
	return p.Form >= ownSums && Checksum(0, b[:48]) == binary.LittleEndian.Uint32(b[48:])
}

func parsePrelude(b []byte) (Prelude, error) {
	if len(b) < oldPreludeSize || b[0] >= ownSums && len(b) < PreludeSize {
		return Prelude{}, errShort
	}
	if err := checkVersion(b[0]); err != nil {
		return Prelude{}, err
	}
	le := binary.LittleEndian
	p := Prelude{
		Form: b[0], Rcpts: le.Uint16(b[2:]), EnvLen: le.Uint32(b[4:]), EnvCRC: le.Uint32(b[8:]),
		StateLen: le.Uint32(b[12:]),
		Large:    le.Uint64(b[16:]), BodyLen: int64(le.Uint64(b[24:])), BodyCRC: le.Uint32(b[32:]),
	}
	if p.BodyLen < 0 {
		return Prelude{}, errShort
	}
	if p.Form >= ownSums {
		p.StateCRC, p.id = le.Uint32(b[36:]), le.Uint64(b[40:])
	}
	return p, nil
}

// Content is the payload of an accepted or moved record, taken apart.
type Content struct {
	Prelude
	Env, States, Body []byte
}

// ParseContent takes a payload apart.
func ParseContent(payload []byte) (Content, error) {
	p, err := parsePrelude(payload)
	if err != nil {
		return Content{}, err
	}
	c := Content{Prelude: p}
	rest := payload[p.size():]
	if uint64(len(rest)) < uint64(p.EnvLen)+uint64(p.StateLen) {
		return Content{}, errShort
	}
	c.Env, rest = rest[:p.EnvLen], rest[p.EnvLen:]
	c.States, c.Body = rest[:p.StateLen], rest[p.StateLen:]
	want := p.BodyLen
	if p.Large != 0 {
		want = 0
	}
	if int64(len(c.Body)) != want {
		return Content{}, errShort
	}
	return c, nil
}

// Marks are what stays with a recipient whatever it waits for.
type Marks uint8

const (
	MarkHeld Marks = 1 << iota
	MarkWarned
	MarkBounce
	MarkRemove
	MarkCancel   // with markRemove: for its sender
	MarkTransfer // with markRemove: another relay has it; earlier programs know it as removed
)

// RecipientState is one recipient of a moved record.
type RecipientState struct {
	Rcpt     uint16
	Attempts uint16
	Due      uint32
	Marks    Marks
	Key      string
	Replied  bool
	Last     Attempt
}

// AppendStates appends the states of a moved record, as they are at a time. A reply and a key that are
// the same as the one before, as most are, take an octet.
func AppendStates(b []byte, form uint8, at uint32, states []RecipientState) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.uint(uint64(at))
	e.uint(uint64(len(states)))
	for i := range states {
		s := &states[i]
		e.uint(uint64(s.Rcpt))
		e.uint(uint64(s.Attempts))
		e.uint(uint64(s.Due))
		e.byte(uint8(s.Marks))
		same := i > 0 && s.Key == states[i-1].Key && s.Replied == states[i-1].Replied && s.Last == states[i-1].Last
		switch {
		case same:
			e.byte(2)
			continue
		case s.Replied:
			e.byte(1)
		default:
			e.byte(0)
		}
		e.string(s.Key)
		if s.Replied {
			e.attempt(s.Last)
		}
	}
	return e.b
}

// DecodeStates is the inverse of AppendStates.
func DecodeStates(b []byte) (at uint32, _ []RecipientState, _ error) {
	d := decoder{s: string(b)}
	d.version()
	at = d.written()
	states := make([]RecipientState, d.count(5))
	for i := range states {
		s := &states[i]
		s.Rcpt, s.Attempts, s.Due = uint16(d.uint()), uint16(d.uint()), uint32(d.uint())
		s.Marks = Marks(d.byte())
		switch d.byte() {
		case 2:
			if i == 0 {
				d.fail(errShort)
				break
			}
			prev := &states[i-1]
			s.Key, s.Replied, s.Last = prev.Key, prev.Replied, prev.Last
		case 1:
			s.Key, s.Replied = d.string(), true
			s.Last = d.attempt()
		default:
			s.Key = d.string()
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
	if e.form >= WithDetours {
		e.string(a.Detour.Pool)
		e.string(a.Detour.Route)
	}
}

func (d *decoder) attempt() Attempt {
	a := Attempt{Reply: d.reply(), Via: d.string()}
	if d.form >= WithDetours {
		a.Detour = envelope.Detour{Pool: d.string(), Route: d.string()}
	}
	return a
}

// AppendSettled makes the payload of a settled record. Recipients are in ascending order.
func AppendSettled(b []byte, form uint8, outcome uint8, rcpts []uint16) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.byte(outcome)
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

func decodeSettled(b []byte, f func(uint16)) (outcome uint8, err error) {
	d := decoder{s: string(b)}
	d.version()
	outcome = d.byte()
	d.recipients(f)
	return outcome, d.err
}

// Deferral is the payload of a deferred record.
type Deferral struct {
	At       uint32 // when it was written; 0 in old ones
	Due      uint32
	Key      string
	Last     Attempt
	Rcpts    []uint16
	Attempts []uint16 // of each of rcpts
}

// AppendDeferral makes the payload of a deferred record.
func AppendDeferral(b []byte, form uint8, f *Deferral) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.uint(uint64(f.At))
	e.uint(uint64(f.Due))
	e.string(f.Key)
	e.attempt(f.Last)
	e.recipients(f.Rcpts)
	for _, n := range f.Attempts {
		e.uint(uint64(n))
	}
	return e.b
}

// DecodeDeferral is the inverse of AppendDeferral.
func DecodeDeferral(b []byte) (Deferral, error) {
	d := decoder{s: string(b)}
	d.version()
	var f Deferral
	f.At = d.written()
	f.Due = uint32(d.uint())
	f.Key = d.string()
	f.Last = d.attempt()
	d.recipients(func(r uint16) { f.Rcpts = append(f.Rcpts, r) })
	for range f.Rcpts {
		f.Attempts = append(f.Attempts, uint16(d.uint()))
	}
	return f, d.err
}

// Change is the payload of a changed record: what the marks of recipients are now and, unless it
// is 0, when they are due.
type Change struct {
	At      uint32 // when it was written; 0 in old ones
	Due     uint32
	Marks   Marks
	Rcpts   []uint16
	Release uint32 // of their message, from now on; 0: as before
}

// AppendChange makes the payload of a changed record.
func AppendChange(b []byte, form uint8, c *Change) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.uint(uint64(c.At))
	e.uint(uint64(c.Due))
	e.byte(uint8(c.Marks))
	e.recipients(c.Rcpts)
	if c.Release != 0 {
		e.uint(uint64(c.Release))
	}
	return e.b
}

func decodeChange(b []byte) (Change, error) {
	d := decoder{s: string(b)}
	d.version()
	c := Change{At: d.written(), Due: uint32(d.uint()), Marks: Marks(d.byte())}
	d.recipients(func(r uint16) { c.Rcpts = append(c.Rcpts, r) })
	if d.form >= 7 && d.s != "" {
		c.Release = uint32(d.uint())
	}
	return c, d.err
}

// Opening is the payload of an opened record.
type Opening struct {
	// ends says of the segments before that may have octets behind what was synced where that
	// ends: what is behind is void.
	Ends      []SegmentEnd
	LastID    uint64 // the largest id given out so far
	Allocated int64  // octets that the file was made with; a shorter one was trimmed
	Created   time.Time
	Marks     []schedule.Arrival // what was accepted up to an id was so by a time, see arrivals
	Doubted   time.Time          // until when ages were in doubt, see clockWatch; the zero time when they were not
	Ahead     time.Duration      // by how much the clock had jumped ahead then
	// Numbers are the segments that there are, this one included; none before version 10.
	Numbers []Numbers
}

// Numbers are consecutive numbers of segments.
type Numbers struct{ From, To uint32 }

// names reports whether an opened record names a segment as there.
func (o *Opening) names(number uint32) bool {
	return slices.ContainsFunc(o.Numbers, func(n Numbers) bool { return n.From <= number && number <= n.To })
}

// SegmentEnd is where a segment ends.
type SegmentEnd struct {
	Number uint32
	End    int64 // octets
}

// AppendOpening makes the payload of an opened record.
func AppendOpening(b []byte, form uint8, o Opening) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.uint(uint64(len(o.Ends)))
	for _, x := range o.Ends {
		e.uint(uint64(x.Number))
		e.uint(uint64(x.End))
	}
	e.uint(o.LastID)
	e.uint(uint64(o.Allocated))
	e.int(o.Created.UnixNano())
	e.uint(uint64(len(o.Marks)))
	for _, m := range o.Marks {
		e.uint(m.ID)
		e.int(m.At)
	}
	e.uint(uint64(SecondsSince1970(o.Doubted)))
	e.uint(uint64(o.Ahead / time.Second))
	if form >= withNumbers {
		e.uint(uint64(len(o.Numbers)))
		for _, n := range o.Numbers {
			e.uint(uint64(n.From))
			e.uint(uint64(n.To - n.From))
		}
	}
	return e.b
}

// DecodeOpening is the inverse of AppendOpening.
func DecodeOpening(b []byte) (Opening, error) {
	d := decoder{s: string(b)}
	d.version()
	var o Opening
	for range d.count(2) {
		x := SegmentEnd{Number: uint32(d.uint()), End: int64(d.uint())}
		if x.End < 0 {
			d.fail(errShort)
		}
		o.Ends = append(o.Ends, x)
	}
	o.LastID, o.Allocated = d.uint(), int64(d.uint())
	o.Created = time.Unix(0, d.int()).UTC()
	if d.form >= 3 {
		for range d.count(2) {
			o.Marks = append(o.Marks, schedule.Arrival{ID: d.uint(), At: d.int()})
		}
	}
	if d.form >= 5 {
		o.Doubted = time.Unix(int64(uint32(d.uint())), 0)
		o.Ahead = time.Duration(uint32(d.uint())) * time.Second
	}
	if d.form >= withNumbers {
		for range d.count(2) {
			n := Numbers{From: uint32(d.uint())}
			n.To = n.From + uint32(d.uint())
			o.Numbers = append(o.Numbers, n)
		}
	}
	return o, d.err
}

// Burial is the payload of a buried record: the places, as stretches of a segment, at which
// every message is settled.
type Burial struct {
	Segment   uint32
	Stretches []Stretch
}

// Stretch is a part of a segment, in octets; to is not in it.
type Stretch struct{ From, To int64 }

// Dropped is the burial of a whole segment, whose file may be gone from then on.
func Dropped(number uint32) *Burial { return &Burial{number, []Stretch{{0, wholeSegment}}} }

// wholeSegment is above the end of any segment.
const wholeSegment = 1 << 32

// AppendBurial makes the payload of a buried record.
func AppendBurial(b []byte, form uint8, g *Burial) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.uint(uint64(g.Segment))
	e.uint(uint64(len(g.Stretches)))
	at := int64(0)
	for _, s := range g.Stretches {
		e.uint(uint64(s.From-at) / Align)
		e.uint(uint64(s.To-s.From) / Align)
		at = s.To
	}
	return e.b
}

func decodeBurial(b []byte) (Burial, error) {
	d := decoder{s: string(b)}
	d.version()
	g := Burial{Segment: uint32(d.uint())}
	at := int64(0)
	for range d.count(2) {
		from := at + int64(uint32(d.uint()))*Align
		at = from + int64(uint32(d.uint()))*Align
		g.Stretches = append(g.Stretches, Stretch{from, at})
	}
	return g, d.err
}

// AppendMoved makes the payload of a moved record.
func AppendMoved(b []byte, form uint8, id uint64, c *Content, at uint32, states []RecipientState) []byte {
	encoded := AppendStates(nil, form, at, states)
	p := c.Prelude
	p.Form, p.StateLen, p.StateCRC = form, uint32(len(encoded)), Checksum(0, encoded)
	start := len(b)
	b = append(b, make([]byte, PreludeSize)...)
	p.Put(b[start:])
	Sign(b[start:], id)
	return append(append(append(b, c.Env...), encoded...), c.Body...)
}

// Released gives the content of a message whose envelope has another release.
func (c *Content) Released(form uint8, p Plan) *Content {
	m, err := DecodeEnvelope(c.Env)
	if err != nil {
		return c // whoever is handed it finds out
	}
	m.Release = p.ReleaseTime()
	moved := *c
	moved.Env = AppendEnvelope(nil, form, m)
	moved.EnvLen, moved.EnvCRC = uint32(len(moved.Env)), Checksum(0, moved.Env)
	return &moved
}

// Attempt is what is remembered of an attempt that failed.
type Attempt struct {
	Reply reply.Reply
	// Untried says that none was made, and why is the reply: it is not counted.
	Untried bool
	// Reason is the class of what it waits for. It is kept by the line that the recipient has, and not here.
	Reason parking.Reason
	Via    string // which way it took, in the caller's words, so that the next can take the same
	// Detour is what an operator has chosen for the recipient. The queue keeps it: Defer takes no notice of it.
	Detour envelope.Detour
}
