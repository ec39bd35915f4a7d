package smtpclient

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand"
	"strconv"
	"strings"
	"testing"
	"time"
)

// model is a small SMTP host that knows what it has taken. It minds the order of commands as hosts
// do, and misbehaves as its trouble says.
type model struct {
	ehlo    string
	trouble trouble
	unknown string // local parts that begin so are refused; "": none
	rng     *rand.Rand

	nc     io.ReadWriteCloser
	in     *bufio.Reader
	out    *bufio.Writer
	done   chan struct{}
	sender string // "-": no transaction
	rcpts  []string
	chunks strings.Builder
	failed bool // a chunk was refused
	mails  int

	resets, nonMail int

	taken map[string]int // recipient -> how often it was delivered
	wrong []string       // what a host must never see
}

// trouble is how likely each kind is, at each command.
type trouble struct {
	refuse float64 // 4xx or 5xx
	drop   float64 // the connection breaks: before the command is acted on, or after, unanswered
	leave  float64 // 421
	babble float64 // a reply that doesn't fit, and then nobody knows
	max    int     // messages a connection; 0 any
	exim   bool    // drop the connection after more than 10 RSETs beyond one a message
}

func newModel(ehlo string) *model {
	return &model{ehlo: ehlo, taken: make(map[string]int), rng: rand.New(rand.NewSource(1)), done: make(chan struct{}), sender: "-"}
}

// serve connects a client to m over a wire of the given latency.
func serve(t *testing.T, cfg Config, m *model, latency time.Duration) (*Conn, *model) {
	t.Helper()
	client, server := wire(latency, 0)
	go m.serve(server)
	c, err := Handshake(context.Background(), client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, m
}

func (m *model) serve(nc io.ReadWriteCloser) {
	defer close(m.done)
	defer nc.Close()
	m.nc, m.in, m.out = nc, bufio.NewReaderSize(nc, 64<<10), bufio.NewWriterSize(nc, 16<<10)
	m.say("220 model ESMTP")
	for m.command() {
	}
	_ = m.out.Flush()
}

func (m *model) say(reply string) {
	_, _ = m.out.WriteString(reply)
	_, _ = m.out.WriteString("\r\n")
}

// line reads a command; replies leave when there is nothing more to read (RFC 2920, 3.2).
func (m *model) line() (string, error) {
	if m.in.Buffered() == 0 {
		if err := m.out.Flush(); err != nil {
			return "", err
		}
	}
	line, err := m.in.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(string(line), "\r\n"), nil
}

func (m *model) chance(p float64) bool { return p > 0 && m.rng.Float64() < p }

// command acts on one command and reports whether the session goes on.
func (m *model) command() bool {
	line, err := m.line()
	if err != nil {
		return false
	}
	verb, rest, _ := strings.Cut(line, " ")
	if verb == "EHLO" {
		for l := range strings.Lines(m.ehlo) {
			m.say(strings.TrimSpace(strings.TrimPrefix(l, "< ")))
		}
		return true
	}
	switch {
	case verb != "BDAT" && m.chance(m.trouble.drop):
		return m.hangUp()
	case m.chance(m.trouble.leave):
		m.say("421 4.3.2 leaving")
		return false
	case m.chance(m.trouble.babble):
		m.say([]string{"354 what", "hello", "250-", "221 what"}[m.rng.Intn(4)])
		_ = m.out.Flush()
		_, _ = io.Copy(io.Discard, m.in)
		return false
	}
	switch verb {
	case "MAIL":
		return m.mail(rest)
	case "RCPT":
		m.rcpt(rest)
	case "DATA":
		return m.data()
	case "BDAT":
		return m.bdat(rest)
	case "RSET":
		if m.resets++; m.resets > 1 {
			m.nonMail++
		}
		if m.trouble.exim && m.nonMail > 10 {
			m.say("554 too many nonmail commands")
			return false
		}
		m.reset()
		m.say("250 2.0.0 reset")
	case "QUIT":
		m.say("221 2.0.0 bye")
		return false
	default:
		m.wrong = append(m.wrong, line)
		m.say("500 5.5.2 what")
	}
	return true
}

// hangUp breaks the connection: replies that were due may or may not get out.
func (m *model) hangUp() bool {
	if m.rng.Intn(2) == 0 {
		_ = m.out.Flush()
	}
	if e, ok := m.nc.(*end); ok && m.rng.Intn(2) == 0 {
		e.Reset()
	}
	m.out.Reset(io.Discard)
	return false
}

func (m *model) reset() {
	m.sender, m.rcpts, m.failed = "-", m.rcpts[:0], false
	m.chunks.Reset()
}

func (m *model) refused() bool {
	if !m.chance(m.trouble.refuse) {
		return false
	}
	m.say([]string{"451 4.7.1 later", "550 5.7.1 no", "452 4.5.3 too many", "450 no code"}[m.rng.Intn(4)])
	return true
}

func (m *model) mail(rest string) bool {
	m.mails++
	switch {
	case m.trouble.max > 0 && m.mails > m.trouble.max:
		m.say("421 4.7.0 enough for one connection")
		return false
	case m.sender != "-":
		m.wrong = append(m.wrong, "nested MAIL "+rest)
		m.say("503 5.5.1 nested MAIL")
	case m.refused():
	default:
		m.sender = rest[len("FROM:<"):strings.IndexByte(rest, '>')]
		m.say("250 2.1.0 ok")
	}
	return true
}

func (m *model) rcpt(rest string) {
	switch {
	case m.sender == "-":
		m.say("503 5.5.1 MAIL first")
	case m.refused():
	case m.unknown != "" && strings.HasPrefix(rest, "TO:<"+m.unknown):
		m.say("550 5.1.1 unknown")
	default:
		m.rcpts = append(m.rcpts, rest[len("TO:<"):strings.IndexByte(rest, '>')])
		m.say("250 2.1.5 ok")
	}
}

func (m *model) data() bool {
	switch {
	case m.sender == "-":
		m.say("503 5.5.1 MAIL first")
		return true
	case len(m.rcpts) == 0 && m.rng.Intn(2) == 0:
		m.say("554 5.5.1 no valid recipients") // or 354, as RFC 2920, 3.1 has it
		return true
	case len(m.rcpts) > 0 && m.refused():
		return true
	}
	m.say("354 go")
	_ = m.out.Flush()
	if m.chance(m.trouble.drop) {
		return m.hangUp()
	}
	var content strings.Builder
	for {
		line, err := m.in.ReadSlice('\n')
		if err != nil {
			return false
		}
		if string(line) == ".\r\n" {
			break
		}
		if line[0] == '.' {
			line = line[1:]
		}
		content.Write(line)
	}
	return m.deliver(content.String())
}

// deliver takes a whole message; what was refused by RCPT isn't in rcpts.
func (m *model) deliver(content string) bool {
	defer m.reset()
	if len(m.rcpts) > 0 {
		m.resets = 0
	}
	switch {
	case len(m.rcpts) == 0:
		if content != "" {
			m.wrong = append(m.wrong, "content for nobody")
		}
		m.say("554 5.5.1 no valid recipients")
		return true
	case m.refused():
		return true
	case !strings.HasSuffix(content, "for "+m.sender+"\r\n"):
		m.wrong = append(m.wrong, fmt.Sprintf("the content of another message, or half of one, from %s: %q", m.sender, content))
	}
	for _, r := range m.rcpts {
		m.taken[r]++
	}
	if m.chance(m.trouble.drop) {
		return m.hangUp() // after it was taken: the client can't know
	}
	m.say("250 2.0.0 taken")
	return true
}

func (m *model) bdat(rest string) bool {
	size, last := strings.CutSuffix(rest, " LAST")
	n, err := strconv.Atoi(size)
	if err != nil {
		m.wrong = append(m.wrong, "BDAT "+rest)
		return false
	}
	if m.chance(m.trouble.drop) {
		return m.hangUp()
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(m.in, p); err != nil {
		return false
	}
	switch {
	case m.sender == "-" || len(m.rcpts) == 0:
		m.say("503 5.5.1 no valid recipients") // what was begun stays open: only RSET ends it
		return true
	case m.failed:
		m.say("503 5.5.1 a chunk has failed")
		return true
	case !last && m.refused():
		m.failed = true
		return true
	}
	m.chunks.Write(p)
	if !last {
		m.say("250 2.0.0 chunk")
		return true
	}
	return m.deliver(m.chunks.String())
}
