package sink

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
)

// verdict is what happens to a command: the text of its reply, "" until a rule has given one.
type verdict struct {
	text  string
	stop  bool // the session is over, nothing is said
	close bool // the session is over after the reply
	mute  bool
	delay time.Duration
}

// good reports whether the command is to be carried out.
func (v *verdict) good() bool { return v.text == "" || v.text[0] == '2' || v.text[0] == '3' }

// verdict asks the hook, chance and the refusals, in this order, about a command.
func (x *session) verdict(p Phase, address, line string) verdict {
	f := &x.srv.faults
	if x.srv.cfg.Hook != nil {
		a := x.srv.cfg.Hook(x.describe(p, line))
		if a.Drop {
			x.drop(p)
			return verdict{stop: true}
		}
		if a != (Answer{}) {
			return verdict{text: a.Reply, close: a.Close, mute: a.Mute, delay: a.Delay}
		}
	}
	if x.cutsAt(p) {
		x.drop(p)
		return verdict{stop: true}
	}
	if len(f.refusals[p]) == 0 {
		return verdict{}
	}
	return verdict{text: f.refused(p, address, x.srv.cfg.Seed, x.rng)}
}

func (x *session) describe(p Phase, line string) Command {
	c := Command{Phase: p, Line: line, Client: x.client, Connection: x.about.Number,
		Message: x.about.Transactions, Sender: x.tx.sender, Recipients: x.tx.recipients}
	if p == End || p == Kept {
		c.ID, c.Content = x.content.id(), x.content.whole
	}
	return c
}

// answer gives the reply, or what is done in its place, and reports whether the session goes on.
func (x *session) answer(p Phase, v verdict) bool {
	f := &x.srv.faults
	x.spend(f.work[p])
	x.spend(v.delay)
	x.stray(p)
	if v.mute = v.mute || x.chance(f.swallow[p]); v.mute {
		x.srv.stats.swallowed.Add(1)
	} else {
		x.say(v.text)
		x.srv.stats.reply(p, v.text)
	}
	if v.close || strings.HasPrefix(v.text, "421") {
		x.about.End = v.text
		return false
	}
	return true
}

// cutsAt draws whether the connection is cut at p.
func (x *session) cutsAt(p Phase) bool {
	return x.about.Messages >= x.srv.cfg.DropAfter && x.chance(x.srv.faults.drop[p])
}

// stray says what nobody asked for, if chance wants it.
func (x *session) stray(p Phase) {
	if x.chance(x.srv.faults.stray[p]) {
		x.srv.stats.strays.Add(1)
		x.say("250 2.0.0 this is not the reply that you wait for")
	}
}

// chance reports whether what happens with probability p happens now.
func (x *session) chance(p float64) bool { return p > 0 && x.rng.Float64() < p }

// reply is the answer of a rule that needs no verdict.
func (x *session) reply(p Phase, text string) bool { return x.answer(p, verdict{text: text}) }

// command carries out one line, and reports whether the session goes on.
func (x *session) command(line []byte) bool {
	x.commands++
	x.about.Commands++
	verb, arg := line, []byte(nil)
	if before, after, ok := bytes.Cut(line, []byte{' '}); ok {
		verb, arg = before, after
	}
	var upper [8]byte
	if len(verb) > len(upper) {
		return x.unknown()
	}
	v := upper[:copy(upper[:], verb)]
	for i, c := range v {
		if 'a' <= c && c <= 'z' {
			v[i] = c - 'a' + 'A'
		}
	}
	if x.srv.cfg.Inspect {
		x.inspectCommand(v)
	}
	switch string(v) {
	case "EHLO", "HELO":
		return x.hello(string(v), string(arg))
	case "MAIL":
		return x.mail(string(arg))
	case "RCPT":
		return x.rcpt(string(arg))
	case "DATA":
		return x.data()
	case "BDAT":
		return x.bdat(string(arg))
	case "RSET":
		return x.simple(Reset, "250 2.0.0 Ok", true)
	case "NOOP":
		return x.simple(Noop, "250 2.0.0 Ok", false)
	case "VRFY":
		return x.reply(Noop, "252 2.5.2 send some mail and see")
	case "QUIT":
		return x.quit()
	case "STARTTLS":
		return x.startTLS()
	case "AUTH":
		return x.authCommand(string(arg))
	}
	return x.unknown()
}

func (x *session) unknown() bool {
	x.srv.stats.fault("an unknown command")
	return x.reply(Noop, "502 5.5.2 command not recognized")
}

// inspectCommand notes what a client must not do: see RFC 2920, 3.1.
func (x *session) inspectCommand(verb []byte) {
	more := x.r.Buffered() > 0
	switch {
	case more && x.has(Pipelining) && lastInGroup(string(verb)):
		x.srv.stats.fault("pipelined after " + string(verb))
	case more && !x.has(Pipelining) && string(verb) != "BDAT":
		x.srv.stats.fault("pipelined without PIPELINING")
	}
}

func lastInGroup(verb string) bool {
	switch verb {
	case "EHLO", "HELO", "DATA", "STARTTLS", "AUTH", "QUIT", "VRFY", "NOOP":
		return true
	}
	return false
}

// has reports whether EHLO offers e.
func (x *session) has(e Extension) bool { return x.srv.cfg.Without&(e|EHLO) == 0 }

func (x *session) simple(p Phase, text string, reset bool) bool {
	v := x.verdict(p, "", "")
	if v.stop {
		return false
	}
	v.text = cmp.Or(v.text, text)
	if reset && v.good() {
		x.tx = transaction{}
	}
	return x.answer(p, v)
}

func (x *session) quit() bool {
	v := x.verdict(Quit, "", "QUIT")
	if v.stop {
		return false
	}
	v.text = cmp.Or(v.text, "221 2.0.0 Bye")
	x.answer(Quit, v)
	x.about.End = "QUIT"
	return false
}

func (x *session) hello(verb, name string) bool {
	v := x.verdict(Hello, "", verb+" "+name)
	switch {
	case v.stop:
		return false
	case v.text != "":
	case name == "":
		v.text = "501 5.5.4 and who are you?"
	case verb == "HELO":
		v.text = "250 " + x.srv.cfg.Hostname
	case x.srv.cfg.Without&EHLO != 0:
		v.text = "502 5.5.2 EHLO is not known here"
	default:
		v.text = x.capabilities()
	}
	if v.good() {
		x.helo, x.about.Helo = name, name
		x.tx = transaction{} // RFC 5321, 4.1.4: as RSET
	}
	return x.answer(Hello, v)
}

func (x *session) capabilities() string {
	var b strings.Builder
	b.WriteString("250 " + x.srv.cfg.Hostname)
	offer := func(e Extension, line string) {
		if x.has(e) {
			b.WriteString("\n" + line)
		}
	}
	offer(Pipelining, "PIPELINING")
	if x.srv.cfg.MaxSize > 0 {
		offer(Size, "SIZE "+strconv.FormatInt(x.srv.cfg.MaxSize, 10))
	} else {
		offer(Size, "SIZE")
	}
	if x.srv.cfg.TLS != nil && !x.encrypted {
		b.WriteString("\nSTARTTLS")
	}
	if x.encrypted {
		b.WriteString("\nREQUIRETLS") // RFC 8689, 2
	}
	if x.srv.cfg.Auth != nil {
		b.WriteString("\nAUTH PLAIN LOGIN")
	}
	if n := x.srv.cfg.DeliverBy; n > 0 {
		b.WriteString("\nDELIVERBY " + strconv.Itoa(n))
	}
	offer(EightBitMIME, "8BITMIME")
	offer(SMTPUTF8, "SMTPUTF8")
	offer(DSN, "DSN")
	offer(EnhancedCodes, "ENHANCEDSTATUSCODES")
	offer(Chunking, "CHUNKING\nBINARYMIME")
	return b.String()
}

func (x *session) startTLS() bool {
	v := x.verdict(StartTLS, "", "STARTTLS")
	switch {
	case v.stop:
		return false
	case v.text != "":
	case x.srv.cfg.TLS == nil:
		v.text = "502 5.5.1 STARTTLS is not offered"
	case x.encrypted:
		v.text = "503 5.5.1 TLS is on already"
	default:
		v.text = "220 2.0.0 go ahead"
	}
	if !x.answer(StartTLS, v) {
		return false
	}
	if !v.good() {
		return true
	}
	return x.secure()
}

func (x *session) authCommand(arg string) bool {
	v := x.verdict(Auth, "", "AUTH")
	switch {
	case v.stop:
		return false
	case v.text != "":
		return x.answer(Auth, v)
	}
	return x.auth(arg)
}

func (x *session) mail(arg string) bool {
	sender, params, ok := parsePath(arg, "FROM:")
	x.about.Transactions++
	v := x.verdict(Mail, sender, arg)
	switch {
	case v.stop:
		return false
	case v.text != "":
	case !ok:
		v.text = "501 5.5.4 Syntax: MAIL FROM:<address>"
	default:
		v.text = x.mailRules(sender, params)
	}
	if v.good() {
		x.tx.open, x.tx.sender, x.tx.mailParams = true, sender, params
		x.tx.recipients, x.tx.rcptParams = x.tx.recipients[:0], x.tx.rcptParams[:0]
		x.tx.cutAfter = x.whereToCut()
		v.text = cmp.Or(v.text, "250 2.1.0 Ok")
	} else if !x.tx.open {
		x.tx = transaction{} // the parameters read so far
	}
	return x.answer(Mail, v)
}

// mailRules gives the refusal of a MAIL command, "" when there is none.
func (x *session) mailRules(sender, params string) string {
	cfg := &x.srv.cfg
	switch {
	case x.helo == "":
		return "503 5.5.1 Error: send HELO/EHLO first"
	case x.tx.open:
		return "503 5.5.1 Error: nested MAIL command"
	case cfg.TLSOnly && !x.encrypted:
		return "530 5.7.0 Must issue a STARTTLS command first"
	case cfg.Auth != nil && !x.authenticated:
		return "530 5.7.0 Authentication required"
	case cfg.MaxMessages > 0 && x.about.Messages >= cfg.MaxMessages:
		return "421 4.7.0 " + cfg.Hostname + " Too many messages in this connection, reconnect to send more"
	}
	if params != "" {
		if refusal := x.mailParams(params); refusal != "" {
			return refusal
		}
	}
	switch {
	case !envelope.Address(sender).ASCII() && !x.tx.utf8:
		return "553 5.6.7 SMTPUTF8 is needed for this address"
	case cfg.MaxSize > 0 && x.tx.declared > cfg.MaxSize:
		return "552 5.3.4 Message size exceeds fixed limit"
	}
	return ""
}

// mailParams reads the parameters of MAIL into the transaction; one that was not offered is
// refused (RFC 5321, 4.1.1.11).
func (x *session) mailParams(params string) string {
	for param := range strings.FieldsSeq(params) {
		key, value, _ := strings.Cut(param, "=")
		known := false
		switch strings.ToUpper(key) {
		case "SIZE":
			n, err := strconv.ParseInt(value, 10, 64)
			known = x.has(Size) && err == nil
			x.tx.declared = n
		case "BODY":
			value = strings.ToUpper(value)
			known = x.has(EightBitMIME) && (value == "7BIT" || value == "8BITMIME") ||
				x.has(Chunking) && value == "BINARYMIME"
			x.tx.eightBit = value != "7BIT"
		case "SMTPUTF8":
			known = x.has(SMTPUTF8) && value == ""
			x.tx.utf8 = known
		case "RET":
			known = x.has(DSN) && (strings.EqualFold(value, "FULL") || strings.EqualFold(value, "HDRS"))
		case "ENVID":
			known = x.has(DSN) && value != ""
		case "BY":
			known = x.srv.cfg.DeliverBy > 0
		case "REQUIRETLS":
			known = x.encrypted
		case "AUTH":
			known = x.srv.cfg.Auth != nil
		}
		if !known {
			x.srv.stats.fault("a MAIL parameter that was not offered: " + key)
			return "555 5.5.4 Unsupported option: " + param
		}
	}
	return ""
}

func (x *session) rcpt(arg string) bool {
	recipient, params, ok := parsePath(arg, "TO:")
	v := x.verdict(Rcpt, recipient, arg)
	switch {
	case v.stop:
		return false
	case v.text != "" && (x.tx.open || v.good()):
	case !ok:
		v.text = "501 5.5.4 Syntax: RCPT TO:<address>"
	default:
		v.text = x.rcptRules(recipient, params)
	}
	if v.good() {
		x.tx.recipients = append(x.tx.recipients, recipient)
		if params != "" || len(x.tx.rcptParams) > 0 {
			for len(x.tx.rcptParams) < len(x.tx.recipients)-1 {
				x.tx.rcptParams = append(x.tx.rcptParams, "")
			}
			x.tx.rcptParams = append(x.tx.rcptParams, params)
		}
		v.text = cmp.Or(v.text, "250 2.1.5 Ok")
	}
	return x.answer(Rcpt, v)
}

// rcptRules gives the refusal of a RCPT command, "" when there is none.
func (x *session) rcptRules(recipient, params string) string {
	cfg := &x.srv.cfg
	switch {
	case !x.tx.open || x.tx.chunked:
		return "503 5.5.1 Error: need MAIL command"
	case recipient == "":
		return "501 5.1.3 Bad recipient address syntax"
	case !envelope.Address(recipient).ASCII() && !x.tx.utf8:
		return "553 5.6.7 SMTPUTF8 is needed for this address"
	case cfg.MaxRecipients > 0 && len(x.tx.recipients) >= cfg.MaxRecipients:
		return "452 4.5.3 Error: too many recipients"
	}
	for param := range strings.FieldsSeq(params) {
		key, _, _ := strings.Cut(param, "=")
		if !x.has(DSN) || !strings.EqualFold(key, "NOTIFY") && !strings.EqualFold(key, "ORCPT") {
			x.srv.stats.fault("a RCPT parameter that was not offered: " + key)
			return "555 5.5.4 Unsupported option: " + param
		}
	}
	if wait := x.srv.greylisted(x.client.Addr(), x.tx.sender, recipient); wait > 0 {
		x.srv.stats.greylisted.Add(1)
		return greylistReply(recipient, wait)
	}
	return ""
}

func (x *session) data() bool {
	v := x.verdict(Data, x.tx.sender, "DATA")
	switch {
	case v.stop:
		return false
	case v.text != "" && v.text[0] != '3':
		if v.good() {
			v.text = "451 4.3.0 the test's hook gave DATA an invalid reply"
		}
	case !x.tx.open || x.tx.chunked:
		v.text = "503 5.5.1 Error: need MAIL command"
	case len(x.tx.recipients) == 0:
		v.text = "554 5.5.1 Error: no valid recipients"
	case v.text == "":
		v.text = "354 End data with <CR><LF>.<CR><LF>"
	}
	if !x.answer(Data, v) {
		return false
	}
	if v.text[0] != '3' {
		return true // the transaction is still open, as with Postfix and Exim: RSET ends it
	}
	x.content.reset()
	if !x.readContent() {
		return false
	}
	return x.end()
}

// end answers the end of the content: the message is refused, or recorded.
func (x *session) end() bool {
	defer func() { x.tx = transaction{recipients: x.tx.recipients[:0], rcptParams: x.tx.rcptParams[:0]} }()
	if x.srv.cfg.Inspect {
		x.content.report(&x.srv.stats, &x.tx)
	}
	v := x.verdict(End, x.tx.sender, "")
	switch {
	case v.stop:
		return false
	case v.text != "":
	case x.srv.cfg.MaxSize > 0 && x.content.size > x.srv.cfg.MaxSize:
		v.text = "552 5.3.4 Message size exceeds fixed limit"
	}
	if !v.good() {
		return x.answer(End, v)
	}
	if v.text == "" {
		v.text = "250 2.0.0 Ok: queued as " +
			strconv.FormatUint(x.about.Number<<20|uint64(x.about.Transactions&0xfffff), 36)
	}
	return x.keep(v)
}

// keep records the message and gives the final reply, unless the client is never to learn of it.
func (x *session) keep(v verdict) bool {
	drop, mute := x.doubt()
	v.mute = v.mute || mute
	x.about.Messages++
	x.about.Recipients += len(x.tx.recipients)
	x.srv.stats.accepted(x)
	x.srv.cfg.Recorder.add(x, !drop && !v.mute)
	if drop {
		x.drop(Kept)
		return false
	}
	x.spend(x.srv.faults.work[End])
	return x.answer(Kept, v)
}

// doubt draws whether the client is left without the final reply of a message that is kept.
func (x *session) doubt() (drop, mute bool) {
	if x.srv.cfg.Hook != nil {
		a := x.srv.cfg.Hook(x.describe(Kept, ""))
		drop, mute = a.Drop, a.Mute
	}
	f := &x.srv.faults
	return drop || x.cutsAt(Kept), mute || x.chance(f.mute)
}

// parsePath takes "FROM:<a@b> PARAMS" apart; a source route is not understood, quotes are.
func parsePath(arg, keyword string) (address, params string, ok bool) {
	if len(arg) < len(keyword) || !strings.EqualFold(arg[:len(keyword)], keyword) {
		return "", "", false
	}
	arg = strings.TrimLeft(arg[len(keyword):], " ")
	if arg == "" || arg[0] != '<' {
		return "", "", false
	}
	quoted := false
	for i := 1; i < len(arg); i++ {
		switch c := arg[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == '>' && !quoted:
			return arg[1:i], strings.TrimSpace(arg[i+1:]), true
		}
	}
	return "", "", false
}
