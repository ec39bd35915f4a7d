// Package blackhole is the far end of connections for tests: an SMTP server in memory that drops all mail, or refuses
// it. Each connection has a goroutine, which ends with it.
package blackhole

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
)

// Open returns the client's end of a connection. The answer is "discard", or "fail" and a reply, such as
// "fail 451 4.3.0 text", which each recipient gets.
func Open(answer string) net.Conn {
	near, far := net.Pipe()
	refusal, _ := strings.CutPrefix(answer, "fail ")
	if answer == "discard" {
		refusal = ""
	}
	go func() {
		defer far.Close()
		s := server{bufio.NewReader(far), far, refusal}
		s.say("220 discard ESMTP")
		for s.command() == nil {
		}
	}()
	return near
}

// server serves one connection.
type server struct {
	in      *bufio.Reader
	out     io.Writer
	refusal string // "": none
}

func (s server) say(line string) error {
	_, err := fmt.Fprintf(s.out, "%s\r\n", line)
	return err
}

// command reads and answers one command. The client is the relay itself: it sends none that isn't offered.
func (s server) command() error {
	line, err := s.in.ReadString('\n')
	if err != nil {
		return err
	}
	words := strings.Fields(line + " NOOP")
	switch strings.ToUpper(words[0]) {
	case "EHLO":
		return s.say("250-discard\r\n250-PIPELINING\r\n250-CHUNKING\r\n250-BINARYMIME\r\n250-8BITMIME\r\n" +
			"250-DELIVERBY\r\n250 SMTPUTF8")
	case "RCPT":
		if s.refusal == "" {
			return s.say("250 2.1.5 ok")
		}
		if err := s.say(s.refusal); err != nil || strings.HasPrefix(s.refusal, "421") {
			return io.EOF
		}
		return nil
	case "DATA":
		if s.refusal != "" {
			return s.say("554 5.5.1 no recipients")
		}
		if err := s.say("354 go on"); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, textproto.NewReader(s.in).DotReader()); err != nil {
			return err
		}
		return s.content(true)
	case "BDAT":
		n, err := strconv.ParseInt(words[1], 10, 64)
		if err == nil {
			_, err = io.CopyN(io.Discard, s.in, n)
		}
		if err != nil {
			return err
		}
		return s.content(strings.EqualFold(words[2], "LAST"))
	case "QUIT":
		s.say("221 2.0.0 bye")
		return io.EOF
	}
	return s.say("250 2.0.0 ok")
}

// content answers content, or a chunk of it.
func (s server) content(last bool) error {
	switch {
	case s.refusal != "":
		return s.say("554 5.5.1 no recipients")
	case last:
		return s.say("250 2.0.0 discarded by this relay: no host has it")
	}
	return s.say("250 2.0.0 ok")
}
