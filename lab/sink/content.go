package sink

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"
)

// maxHead is how much of a content is searched for the header that identifies it.
const maxHead = 64 << 10

// maxLine is the longest line that a client may send, with its CRLF (RFC 5321, 4.5.3.1.6).
const maxLine = 1000

// content is the message as far as it was read: dots unstuffed, line ends as they came.
type content struct {
	identify, capture bool

	size     int64
	head     []byte // the header section, to find the id in
	headDone bool
	whole    []byte // everything, when captured

	bareCR, bareLF, nul, eightBit, long bool // what Inspect saw
}

func (c *content) reset() {
	*c = content{identify: c.identify, capture: c.capture, head: c.head[:0], headDone: !c.identify}
}

// write takes the next part: a line with its end, or a part of one, or a chunk.
func (c *content) write(p []byte) {
	c.size += int64(len(p))
	if c.capture {
		c.whole = append(c.whole, p...)
	}
	if c.headDone {
		return
	}
	from := max(0, len(c.head)-3)
	c.head = append(c.head, p...)
	if bytes.Contains(c.head[from:], []byte("\r\n\r\n")) || len(c.head) > maxHead {
		c.headDone = true
	}
}

var (
	testIDHeader    = []byte("x-mta-test-id:")
	messageIDHeader = []byte("message-id:")
)

// id gives the value of X-Mta-Test-Id, else that of Message-ID without its brackets, else "".
func (c *content) id() string {
	found := ""
	for rest := c.head; len(rest) > 0; {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		if len(line) <= 1 {
			break // the end of the headers
		}
		switch line[0] | 0x20 {
		case 'x':
			if v, ok := headerValue(line, testIDHeader); ok {
				return v
			}
		case 'm':
			if v, ok := headerValue(line, messageIDHeader); ok && found == "" {
				found = strings.Trim(v, "<>")
			}
		}
	}
	return found
}

func headerValue(line, name []byte) (string, bool) {
	if len(line) < len(name) || !bytes.EqualFold(line[:len(name)], name) {
		return "", false
	}
	return string(bytes.TrimSpace(line[len(name):])), true
}

// inspect notes what is not allowed in a line, or a part of one.
func (c *content) inspect(line []byte, whole bool) {
	body := bytes.TrimSuffix(line, []byte("\n"))
	if len(body) < len(line) && !bytes.HasSuffix(body, []byte("\r")) {
		c.bareLF = true
	}
	if i := bytes.IndexByte(body, '\r'); i >= 0 && i < len(body)-1 {
		c.bareCR = true
	}
	if bytes.IndexByte(body, 0) >= 0 {
		c.nul = true
	}
	if len(line) > maxLine || !whole {
		c.long = true
	}
	for _, b := range body {
		if b >= 0x80 {
			c.eightBit = true
			break
		}
	}
}

// report hands on what inspect saw, once a message.
func (c *content) report(s *counters, tx *transaction) {
	for _, f := range []struct {
		seen bool
		what string
	}{
		{c.bareCR, "a bare CR in content"},
		{c.bareLF, "a bare LF in content"},
		{c.nul, "a NUL in content"},
		{c.long, "a line of content over 998 octets"},
		{c.eightBit && !tx.eightBit, "8-bit content without BODY=8BITMIME"},
	} {
		if f.seen {
			s.fault(f.what)
		}
	}
}

// readContent reads what DATA announced, to the dot, and reports whether the session goes on.
func (x *session) readContent() bool {
	c := &x.content
	newLine, lastByte := true, byte('\n')
	for {
		line, err := x.r.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull {
			x.about.End = "client left in content"
			return false
		}
		if newLine && line[0] == '.' {
			if len(line) == 3 && line[1] == '\r' {
				return true
			}
			line = line[1:]
		}
		// Only CRLF ends a line (RFC 5321, 2.3.8): ".\n" or "\n.\r\n" ends no content here.
		n := len(line)
		newLine = err == nil && (n >= 2 && line[n-2] == '\r' || n == 1 && lastByte == '\r')
		if n > 0 {
			lastByte = line[n-1]
		}
		if x.srv.cfg.Inspect {
			c.inspect(line, err == nil)
		}
		c.write(line)
		if x.tx.cutAfter > 0 && c.size >= x.tx.cutAfter {
			x.drop(Content)
			return false
		}
	}
}

// whereToCut draws after how many octets of content the connection is dropped; 0 is never.
func (x *session) whereToCut() int64 {
	if !x.cutsAt(Content) {
		return 0
	}
	return 1 + x.rng.Int64N(max(512, x.tx.declared))
}

// bdat reads a chunk (RFC 3030, 2). Its octets follow the command whatever the answer is.
func (x *session) bdat(arg string) bool {
	length, last, _ := strings.Cut(strings.TrimSpace(arg), " ")
	n, err := strconv.ParseInt(length, 10, 64)
	isLast := strings.EqualFold(last, "LAST")
	if err != nil || n < 0 || last != "" && !isLast || !x.has(Chunking) {
		x.srv.stats.fault("a BDAT that can't be understood")
		x.about.End = "bad BDAT"
		x.reply(Data, "501 5.5.4 Syntax: BDAT SIZE [LAST], where CHUNKING is offered")
		return false // where the chunk ends is unknown, so nothing after it can be trusted
	}
	refusal := x.bdatRules()
	if refusal == "" && !x.tx.chunked {
		v := x.verdict(Data, x.tx.sender, "BDAT "+arg)
		if v.stop {
			return false
		}
		if !v.good() {
			refusal = v.text
		}
		x.content.reset()
	}
	if !x.readChunk(n, refusal == "") {
		return false
	}
	switch {
	case refusal != "":
		x.tx.chunksRefused = true
		if isLast {
			x.tx = transaction{}
		}
		return x.reply(Data, refusal)
	case isLast:
		return x.end()
	}
	x.tx.chunked = true
	return x.reply(Data, "250 2.0.0 "+length+" octets received")
}

func (x *session) bdatRules() string {
	switch {
	case !x.tx.open:
		return "503 5.5.1 Error: need MAIL command"
	case x.tx.chunksRefused:
		return "503 5.5.1 Error: an earlier chunk was refused"
	case len(x.tx.recipients) == 0:
		return "554 5.5.1 Error: no valid recipients"
	}
	return ""
}

func (x *session) readChunk(n int64, keep bool) bool {
	for n > 0 {
		if x.r.Buffered() == 0 {
			if _, err := x.r.Peek(1); err != nil {
				x.about.End = "client left in a chunk"
				return false
			}
		}
		p, err := x.r.Peek(int(min(n, int64(x.r.Buffered()))))
		if err != nil && err != io.EOF {
			return false
		}
		if keep {
			x.content.write(p)
			if x.tx.cutAfter > 0 && x.content.size >= x.tx.cutAfter {
				x.drop(Content)
				return false
			}
		}
		n -= int64(len(p))
		x.r.Discard(len(p))
	}
	return true
}
