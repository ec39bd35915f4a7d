package events

import (
	"bytes"
	"time"

	"example.org/mta/mta/accounting"
)

// fields are those of a record that streams select and send by. They are parts of its line.
type fields struct {
	id, kind, message, tenant, class []byte
	timestamp                        int64 // seconds
	micros                           int64 // of event_time
}

func (f *fields) time() time.Time { return time.Unix(f.timestamp, f.micros*1000).UTC() }

// scan finds the fields of a record. The lines are those that package accounting writes, so no JSON
// is parsed: the members of the object are stepped over, and a line of another form (an escape in a
// field that counts, white space) is left to the parser. ok is false when the line is no record.
//
// It takes a microsecond; json.Unmarshal takes twenty times that (BenchmarkScan).
func scan(line []byte) (f fields, ok bool) {
	if f.step(line) {
		return f, len(f.kind) > 0
	}
	return parse(line)
}

// step goes over the members of an object and reports whether the line has the expected form.
func (f *fields) step(line []byte) bool {
	if len(line) < 2 || line[0] != '{' || line[len(line)-1] != '}' {
		return false
	}
	i := 1
	for {
		if i >= len(line) || line[i] != '"' {
			return false
		}
		end := bytes.IndexByte(line[i+1:], '"')
		if end < 0 || i+end+3 >= len(line) || line[i+end+2] != ':' {
			return false
		}
		key := line[i+1 : i+1+end]
		start := i + end + 3
		after := skip(line, start)
		if after < 0 || after >= len(line) || !f.note(key, line[start:after]) {
			return false
		}
		switch line[after] {
		case ',':
			i = after + 1
		case '}':
			return after == len(line)-1
		default:
			return false
		}
	}
}

// note keeps the value of a member if it counts. It reports whether the value is as plain as expected.
func (f *fields) note(key, value []byte) bool {
	var to *[]byte
	switch string(key) {
	case "type":
		to = &f.kind
	case "id":
		to = &f.message
	case "tenant":
		to = &f.tenant
	case "event_id":
		to = &f.id
	case "bounce_classification":
		to = &f.class
	case "timestamp":
		for _, c := range value {
			if c < '0' || c > '9' {
				return false
			}
			f.timestamp = f.timestamp*10 + int64(c-'0')
		}
		return len(value) > 0
	case "event_time":
		f.micros = fraction(value)
		return true
	default:
		return true
	}
	if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return false
	}
	*to = value[1 : len(value)-1]
	return true
}

// fraction gives the microseconds of a quoted time such as "2026-03-01T12:00:00.25Z".
func fraction(quoted []byte) (micros int64) {
	const dot = len(`"2026-03-01T12:00:00`)
	if len(quoted) <= dot || quoted[dot] != '.' {
		return 0
	}
	unit := int64(100_000)
	for _, c := range quoted[dot+1:] {
		if c < '0' || c > '9' {
			break
		}
		micros += int64(c-'0') * unit
		unit /= 10
	}
	return micros
}

// skip returns where the value that begins at i ends, -1 if it does not.
func skip(line []byte, i int) int {
	switch line[i] {
	case '"':
		return skipString(line, i)
	case '{', '[':
		return skipNested(line, i)
	}
	for ; i < len(line); i++ {
		if c := line[i]; c == ',' || c == '}' || c == ']' {
			return i
		}
	}
	return -1
}

func skipString(line []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(line[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		escapes := 0
		for line[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

func skipNested(line []byte, i int) int {
	for depth := 0; i >= 0 && i < len(line); {
		switch line[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			i = skipString(line, i)
			continue
		}
		i++
	}
	return -1
}

// parse reads a record in the slow way.
func parse(line []byte) (f fields, ok bool) {
	r, err := accounting.Parse(line)
	if err != nil || r.Type == "" {
		return fields{}, false
	}
	f = fields{
		id: []byte(r.EventID), kind: []byte(r.Type), tenant: []byte(r.Tenant), class: []byte(r.Class),
		timestamp: r.Time.Unix(), micros: int64(r.Time.Nanosecond() / 1000),
	}
	if r.ID != 0 {
		f.message = []byte(r.ID.String())
	}
	return f, true
}
