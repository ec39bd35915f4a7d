package submission

import "bytes"

var crlf = []byte("\r\n")

// dots finds the end of DATA and takes dot-stuffing away (RFC 5321, 4.5.2). Only the five octets
// CRLF . CRLF are the end, and the CRLF of the DATA command counts as the first two. LF . LF,
// LF . CRLF, CR . CR and their like are content: what other hosts may take for an end must not
// be one here ("SMTP smuggling").
//
// The library's own reader differs from this on two sequences: it does not see the end in
// CR CRLF . CRLF, and it drops the CR in CRLF . CR.
type dots struct {
	midLine bool // not at the start of a line
	lenient bool // LF alone ends a line too, except for the end of DATA
}

// next looks at b, which holds what has arrived. It gives a run of content within b, and how
// many octets of b are done with; none means that more must arrive first. The end mark comes by
// itself.
func (d *dots) next(b []byte) (run []byte, used int, end bool) {
	if !d.midLine && len(b) > 0 && b[0] == '.' {
		switch {
		case len(b) == 1, len(b) == 2 && b[1] == '\r':
			return nil, 0, false
		case b[1] == '\r' && b[2] == '\n':
			return nil, 3, true
		}
		d.midLine = true
		run, used = d.run(b[1:])
		return run, used + 1, false
	}
	run, used = d.run(b)
	return run, used, false
}

// run gives the content up to the next line that starts with a dot. It holds back a CR at the end
// of b (and a bare LF, when lenient), since what follows decides what it is.
func (d *dots) run(b []byte) (run []byte, used int) {
	for from := 0; ; {
		i := bytes.Index(b[from:], []byte("\n."))
		if i < 0 {
			break
		}
		i += from
		if i > 0 && b[i-1] == '\r' {
			d.midLine = false
			return b[:i+1], i + 1
		}
		if d.lenient {
			// A sender that ends its lines in LF has stuffed the dots after them too. This one
			// goes away here, so that a lone dot after a bare LF can't be the end.
			d.midLine = true
			return b[:i+1], i + 2
		}
		from = i + 1
	}
	n := len(b)
	switch {
	case n == 0:
	case b[n-1] == '\r', d.lenient && b[n-1] == '\n' && !bytes.HasSuffix(b, crlf):
		n--
	}
	if n > 0 {
		d.midLine = !bytes.HasSuffix(b[:n], crlf)
	}
	return b[:n], n
}
