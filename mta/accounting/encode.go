package accounting

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"

	"example.org/mta/internal/legible"
	"example.org/mta/internal/linelog"
	"example.org/mta/internal/reply"
)

// encoder is the memory that records are encoded in, one after the other.
//
// It is written out by hand since each message costs several records: encoding/json takes three
// times as long and allocates (see BenchmarkEncode).
type encoder struct {
	line []byte
	// Most records are of the same second as the one before.
	event, created, scheduled stamp
}

// encode returns r as a line of JSON, valid until the next call. node is the value of nodeid, encoded.
func (e *encoder) encode(r *Record, node string) []byte {
	b := append(e.line[:0], `{"type":"`...)
	b = append(b, r.Type...)
	b = append(b, '"')
	switch r.Type {
	case Lost:
		b = appendInt(b, "count", r.Count)
	case Warmup:
		b = appendWarmup(b, r)
	default:
		b = appendMessage(b, r)
	}
	b = e.event.append(b, "timestamp", "event_time", r.Time)
	if !r.Created.IsZero() {
		b = e.created.append(b, "created", "created_time", r.Created)
	}
	if !r.Release.IsZero() {
		b = e.scheduled.append(b, "scheduled", "scheduled_time", r.Release)
	}
	b = append(b, `,"nodeid":`...)
	b = append(b, node...)
	e.line = linelog.AppendSeal(b, node)
	return e.line
}

// appendWarmup adds what there is of an event that is no message's.
func appendWarmup(b []byte, r *Record) []byte {
	b = appendString(b, "event", r.Event)
	b = appendInt(b, "stage", int64(r.Stage))
	b = appendResponse(b, &r.Response)
	b = appendFilled(b, "egress_source", r.EgressSource)
	return appendFilled(b, "provider_name", r.Provider)
}

// appendMessage adds all but what every type has.
func appendMessage(b []byte, r *Record) []byte {
	b = append(b, `,"id":"`...)
	if r.ID != 0 {
		b = append(b, r.ID.String()...)
	}
	b = append(b, '"')
	b = appendString(b, "sender", string(r.Sender))
	b = appendString(b, "recipient", string(r.Recipient))
	b = appendString(b, "queue", r.Queue)
	b = appendString(b, "site", r.Site)
	b = appendInt(b, "size", r.Size)
	if r.Count > 1 {
		b = appendInt(b, "count", r.Count)
	}
	b = appendResponse(b, &r.Response)
	b = appendFilled(b, "bounce_classification", r.Class)
	if r.Peer.Name != "" || r.Peer.Addr.IsValid() {
		b = append(b, `,"peer_address":{"name":`...)
		b = quote(b, r.Peer.Name)
		b = append(b, `,"addr":"`...)
		if r.Peer.Addr.IsValid() {
			b = r.Peer.Addr.WithZone("").AppendTo(b)
		}
		b = append(b, `"}`...)
	}
	b = appendInt(b, "num_attempts", int64(r.Attempts))
	b = appendFilled(b, "provider_name", r.Provider)
	b = appendFilled(b, "egress_pool", r.EgressPool)
	b = appendFilled(b, "egress_source", r.EgressSource)
	b = appendFilled(b, "user", r.User)
	b = appendFilled(b, "key", r.Key)
	b = appendFilled(b, "tenant", r.Tenant)
	b = appendFilled(b, "campaign", r.Campaign)
	b = appendStrings(b, "tags", r.Tags)
	b = appendObject(b, "meta", string(r.Meta))
	b = appendFilled(b, "trace_id", r.TraceID)
	b = appendFilled(b, "moved_from", r.MovedFrom)
	b = appendObject(b, "headers", string(r.Headers))
	b = appendObject(b, "feedback_report", string(r.Report))
	b = appendFilled(b, "matched_by", r.MatchedBy)
	b = appendFilled(b, "session_id", r.Session)
	b = appendFilled(b, "reception_protocol", r.ReceptionProtocol)
	b = appendFilled(b, "delivery_protocol", r.DeliveryProtocol)
	b = appendFilled(b, "tls_protocol_version", r.TLS.Version)
	b = appendFilled(b, "tls_cipher", r.TLS.Cipher)
	b = appendFilled(b, "tls_trust", r.TLS.Trust)
	b = appendFilled(b, "tls_verified_by", r.TLS.By)
	b = appendFilled(b, "tls_certificate", r.TLS.Certificate)
	if r.Local.Addr().IsValid() {
		b = append(b, `,"source_address":{"address":"`...)
		b = appendEnd(b, r.Local)
		b = append(b, `"}`...)
	}
	return appendPhases(b, r)
}

// appendEnd adds "ip:port", or the address alone where no port is known.
func appendEnd(b []byte, end netip.AddrPort) []byte {
	if end.Port() == 0 {
		return end.Addr().AppendTo(b)
	}
	return end.AppendTo(b)
}

// appendPhases adds what took how long, in seconds. Each attempt has a queue time, and so has a
// Delivery that took none.
func appendPhases(b []byte, r *Record) []byte {
	if r.Queued == 0 && r.Phases == (Phases{}) {
		return b
	}
	b = appendSeconds(appendKey(b, "queue_time"), r.Queued)
	return appendAttempt(b, &r.Phases)
}

// appendAttempt adds the phases of at least a microsecond, the log's unit: shorter ones would read 0.
func appendAttempt(b []byte, phases *Phases) []byte {
	bare := len(b)
	for _, p := range phases.named() {
		if p.took < time.Microsecond {
			continue
		}
		if len(b) == bare {
			b = append(b, `,"attempt_time":{"`...)
		} else {
			b = append(b, ',', '"')
		}
		b = append(b, p.name...)
		b = append(b, '"', ':')
		b = appendSeconds(b, p.took)
	}
	if len(b) > bare {
		b = append(b, '}')
	}
	return b
}

// named gives the phases in the order in which they come, under their names in the log.
func (p *Phases) named() [6]struct {
	name string
	took time.Duration
} {
	return [...]struct {
		name string
		took time.Duration
	}{{"wait", p.Wait}, {"connect", p.Connect}, {"handshake", p.Handshake}, {"turn", p.Turn}, {"send", p.Send},
		{"reply", p.Reply}}
}

// appendSeconds adds d in seconds, to the microsecond.
func appendSeconds(b []byte, d time.Duration) []byte {
	us := max(0, d.Microseconds())
	b = strconv.AppendInt(b, us/1e6, 10)
	return appendFraction(b, int(us%1e6))
}

// appendFraction adds microseconds as the fraction of a second, without zeros at its end.
func appendFraction(b []byte, us int) []byte {
	if us == 0 {
		return b
	}
	var digits [6]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + us%10)
		us /= 10
	}
	n := len(digits)
	for digits[n-1] == '0' {
		n--
	}
	b = append(b, '.')
	return append(b, digits[:n]...)
}

func appendResponse(b []byte, r *reply.Reply) []byte {
	b = append(b, `,"response":{"code":`...)
	b = strconv.AppendInt(b, int64(r.Code), 10)
	if r.Enhanced != (reply.Enhanced{}) {
		b = append(b, `,"enhanced_code":{"class":`...)
		b = strconv.AppendUint(b, uint64(r.Enhanced[0]), 10)
		b = append(b, `,"subject":`...)
		b = strconv.AppendUint(b, uint64(r.Enhanced[1]), 10)
		b = append(b, `,"detail":`...)
		b = strconv.AppendUint(b, uint64(r.Enhanced[2]), 10)
		b = append(b, '}')
	}
	b = appendString(b, "content", r.Text)
	b = appendFilled(b, "command", r.Command)
	if r.Local {
		b = append(b, `,"local":true`...)
	}
	return append(b, '}')
}

// stamp is the text of a point in time, up to its second.
type stamp struct {
	second int64
	text   []byte // empty: none yet
}

// append adds t twice: in seconds, as KumoMTA always had it, and to the microsecond.
func (s *stamp) append(b []byte, seconds, exact string, t time.Time) []byte {
	if second := t.Unix(); second != s.second || len(s.text) == 0 {
		s.second = second
		s.text = appendInt(s.text[:0], seconds, second)
		s.text = append(appendKey(s.text, exact), '"')
		s.text = t.UTC().AppendFormat(s.text, "2006-01-02T15:04:05")
	}
	b = append(b, s.text...)
	b = appendFraction(b, t.Nanosecond()/1000)
	return append(b, 'Z', '"')
}

func appendKey(b []byte, key string) []byte {
	b = append(b, ',', '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

func appendInt(b []byte, key string, n int64) []byte {
	return strconv.AppendInt(appendKey(b, key), n, 10)
}

func appendString(b []byte, key, s string) []byte { return quote(appendKey(b, key), s) }

// appendFilled adds the field unless it is empty.
func appendFilled(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(b, key, s)
}

// appendStrings adds a list of texts unless it is empty.
func appendStrings(b []byte, key string, all []string) []byte {
	if len(all) == 0 {
		return b
	}
	b = append(appendKey(b, key), '[')
	for i, s := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = quote(b, s)
	}
	return append(b, ']')
}

// appendObject adds an object of somebody else's making: a sender's data, or a report. It is written anew so
// that it can't spoil the log, whatever is in it: on one line, and without what a terminal would obey. What
// is no JSON object is left out.
func appendObject(b []byte, key, object string) []byte {
	if object == "" {
		return b
	}
	var plain bytes.Buffer
	if json.Compact(&plain, []byte(object)) != nil || plain.Len() == 0 || plain.Bytes()[0] != '{' {
		return b
	}
	return legible.AppendJSON(appendKey(b, key), plain.Bytes())
}

// plain are the octets that a JSON string has as they are.
var plain = func() (is [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		is[c] = c != '"' && c != '\\'
	}
	return is
}()

// quote adds s as a JSON string (RFC 8259, 7). What is not UTF-8 becomes U+FFFD, and what a
// terminal would obey instead of showing it is escaped: replies of remote hosts can hold anything.
func quote(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	i := 0
	for i < len(s) && plain[s[i]] {
		i++
	}
	start := 0 // of what is not yet added
	for i < len(s) {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 || legible.Hidden(r) {
				b = legible.AppendEscaped(append(b, s[start:i]...), r)
				start = i + size
			}
			i += size
			continue
		}
		b = append(b, s[start:i]...)
		i++
		start = i
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
