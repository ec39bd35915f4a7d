package sendmail

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
)

// smtpSession passes SMTP on between a program and the relay, one command at a time. Programs say
// everything at once to a sendmail on a pipe, before the relay has greeted them; over TCP that is
// how attacks look, and the relay refuses it.
type smtpSession struct {
	in     *bufio.Reader
	out    io.Writer
	relay  *net.TCPConn
	says   *bufio.Reader // what the relay answers
	verb   string        // of the last command
	bareLF bool          // the program ends its lines in LF
}

// longestLine is more than the relay takes for a line of content, in octets.
const longestLine = 128 << 10

// errInputEnds is the end of what the program says.
var errInputEnds = errors.New("end of input")

// passSMTP lasts until the program or the relay ends the session.
func passSMTP(in io.Reader, out io.Writer, relay *net.TCPConn) error {
	s := &smtpSession{in: bufio.NewReaderSize(in, longestLine), out: out, relay: relay, says: bufio.NewReader(relay)}
	code, err := s.reply()
	for err == nil {
		switch {
		case code == 354:
			err = s.content()
		case code == 220 && s.verb == "STARTTLS":
			return s.octets()
		default:
			err = s.command()
		}
		if err == nil {
			code, err = s.reply()
		}
	}
	switch {
	case errors.Is(err, errInputEnds):
		_ = relay.CloseWrite()
		_, err = io.Copy(out, s.says)
		return err
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// reply passes a reply on and gives its code.
func (s *smtpSession) reply() (int, error) {
	for {
		line, err := s.says.ReadSlice('\n')
		if _, e := s.out.Write(line); e != nil {
			return 0, e
		}
		if err != nil {
			return 0, err
		}
		if len(line) < 4 || line[3] != '-' {
			return strconv.Atoi(string(line[:min(3, len(line))]))
		}
	}
}

// command passes a command on, and the chunk that follows BDAT.
func (s *smtpSession) command() error {
	line, err := s.in.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		_, _ = s.relay.Write(line)
		return errInputEnds
	}
	if s.verb == "" {
		s.bareLF = !bytes.HasSuffix(line, []byte("\r\n"))
	}
	verb, arg, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	s.verb = strings.ToUpper(verb)
	if err := s.send(line); err != nil || s.verb != "BDAT" {
		return err
	}
	digits, _, _ := strings.Cut(arg, " ")
	size, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return nil // the relay says what is wrong
	}
	if _, err = io.CopyN(s.relay, s.in, size); errors.Is(err, io.EOF) {
		err = errInputEnds
	}
	return err
}

// content passes a message on, up to the dot that ends it. The line ends of the first command say
// which ones count: a program that ends its lines in CRLF may have LF . LF in a message.
func (s *smtpSession) content() error {
	for start := true; ; {
		line, err := s.in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			_, _ = s.relay.Write(line)
			return errInputEnds
		}
		end := start && (string(line) == ".\r\n" || s.bareLF && string(line) == ".\n")
		start = bytes.HasSuffix(line, []byte("\r\n")) || s.bareLF && err == nil
		if err := s.send(line); err != nil || end {
			return err
		}
	}
}

// send passes a line on, or the part of one, with the line end that SMTP wants.
func (s *smtpSession) send(line []byte) error {
	if text, ok := bytes.CutSuffix(line, []byte("\n")); ok && s.bareLF && !bytes.HasSuffix(text, []byte("\r")) {
		line = append(bytes.Clone(text), "\r\n"...)
	}
	_, err := s.relay.Write(line)
	return err
}

// octets passes on what is no longer SMTP in clear.
func (s *smtpSession) octets() error {
	go func() {
		// Ends with the input, or with the program.
		if _, err := io.Copy(s.relay, s.in); err == nil {
			_ = s.relay.CloseWrite()
		}
	}()
	_, err := io.Copy(s.out, s.says)
	return err
}
