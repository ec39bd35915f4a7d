// Package sendmail is what the program of that name does: it reads a command line as sendmail's, takes a
// message from standard input, and submits it to the relay on this machine or, while the relay is away,
// leaves it in its maildrop; or it passes on SMTP.
package sendmail

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/emersion/go-smtp"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/maildrop"
)

// Exit codes of sysexits.h, which callers of sendmail know.
const (
	ExOK          = 0
	ExUsage       = 64 // wrong command line
	ExDataErr     = 65 // wrong message
	ExNoUser      = 67 // no such recipient
	ExNoHost      = 68 // no such recipient's domain
	ExUnavailable = 69 // refused for another reason
	ExSoftware    = 70
	ExOSErr       = 71
	ExIOErr       = 74
	ExTempFail    = 75 // nothing is wrong for good: try again later
	ExNoPerm      = 77 // may not relay
)

// Help is the usage text.
const Help = `usage: sendmail [-t] [-i] [-f SENDER] [-F NAME] [-N DSN] [-R RET] [-V ENVID] [RECIPIENT...]
       sendmail -bs | -bp | -bi | -q

Submit the message on standard input to the relay on this machine. If the relay is away,
or its disk is full, the message is left in its maildrop, and goes out when the relay is back;
if that is not possible, the exit code is 75 (EX_TEMPFAIL), and the caller tries again.
The message goes to all recipients or, if one is refused, to none.

  -t         take recipients from To, Cc and Bcc, in addition to the command line
  -i, -oi    a line with a single dot does not end the message
  -f SENDER  the envelope's sender; '' or <> is the null sender
  -F NAME    the author's name, for a message without From
  -N DSN     when to report: never, or success,failure,delay
  -R RET     what a report returns: full or hdrs
  -V ENVID   an id for reports
  -bs        use SMTP on standard input and output; commands may be pipelined
  -bp        list the queue, like mailq
  -bi, -I    no effect: there are no aliases to build; for scripts that call newaliases
  -q         try everything in the queue now

Bcc is removed from the message. From is added if it is missing; addresses without a
domain get this machine's name. The relay is at $MTA_SMTP ("ip:port"), else at the
address in the configuration. Other options of sendmail are accepted and ignored.

Exit codes: 0 sent or safely left, 64 usage error, 65 invalid message, 67 no such user, 68 no such
domain, 69 refused, 74 read error, 75 try again later, 77 relaying denied.
`

// Local is what sendmail knows of the machine.
type Local struct {
	SMTP     string // "ip:port" of the relay; "" when no listener begins in clear
	Hostname string // for addresses without a domain, and EHLO
	User     string // the caller
	Maildrop string // directory; "" when the relay may be on another machine
	Unknown  string // why SMTP and Maildrop are only the defaults; "" when something names them
}

// exit is an error with the code that it ends the program with.
type exit struct {
	error
	code int
}

func (e exit) Unwrap() error { return e.error }

func exitf(code int, format string, args ...any) error {
	return exit{fmt.Errorf(format, args...), code}
}

// Code gives the exit code for an error of this package.
func Code(err error) int {
	if e := (exit{}); errors.As(err, &e) {
		return e.code
	}
	return ExSoftware
}

// hinted is an error with its remedy.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// Hint gives the remedy.
func (h hinted) Hint() string { return h.hint }

// orUnknown adds to an error of what was tried that this was but a guess.
func (l *Local) orUnknown(err error) error {
	if e := (exit{}); l.Unknown == "" || !errors.As(err, &e) || e.code != ExTempFail {
		return err
	}
	return exit{hinted{fmt.Errorf("%w\nthe place of the relay is not known, and the defaults were tried (%s, %s): %s",
		err, l.SMTP, l.Maildrop, l.Unknown),
		"name its configuration with -C or in MTA_CONFIG, or its address in MTA_SMTP"}, ExTempFail}
}

// qualify makes an address of what people write: one without a domain is on this machine.
func (l *Local) qualify(s string) (envelope.Address, error) {
	if !strings.Contains(s, "@") {
		s += "@" + l.Hostname
	}
	a, err := envelope.ParseAddress(s)
	if err != nil {
		return "", fmt.Errorf("address %q: %w", s, err)
	}
	return a, nil
}

// Send submits the message that in has or, while the relay is away, leaves it in its maildrop. name is the
// author's unless the options have one. See Code for the errors.
func Send(in io.Reader, l *Local, o Options, name string) error {
	if len(o.recipients) == 0 && !o.fromHeader {
		return exit{hinted{errors.New("nobody to send to"), "name recipients, or take them from the message with -t"},
			ExUsage}
	}
	sender, err := o.envelopeSender(l)
	if err != nil {
		return err
	}
	m, err := readMessage(in, o.ignoreDots)
	if err != nil {
		return err
	}
	defer m.close()
	recipients, err := o.envelopeRecipients(m, l)
	if err != nil {
		return err
	}
	author, err := o.author(sender, l, name)
	if err != nil {
		return err
	}
	m.finish(author, l.Hostname)
	err = submit(l, o, sender, recipients, m)
	if l.Maildrop != "" && mayLeave(err) {
		err = leave(l, o, sender, recipients, m, err)
	}
	return l.orUnknown(err)
}

// mayLeave reports whether the relay can take a message from the maildrop that it has not taken now: it is
// away, or wants a login, which is for who comes by SMTP.
func mayLeave(err error) bool {
	e, answer := exit{}, (*smtp.SMTPError)(nil)
	return errors.As(err, &e) && (e.code == ExTempFail || errors.As(err, &answer) && answer.Code == wantsLogin)
}

// wantsLogin is the reply to who has to log in first (RFC 4954, 6).
const wantsLogin = 530

// leave puts the message where the relay finds it when it is back. why is what kept the relay from
// taking it now.
func leave(l *Local, o Options, sender envelope.Address, recipients []envelope.Address, m *message, why error) error {
	content, err := m.content()
	if err != nil {
		return err
	}
	e := maildrop.Envelope{
		Sender: sender, Recipients: recipients, Return: string(o.ret), ID: o.envid,
		UTF8: needsUTF8(sender, recipients, m),
	}
	for _, n := range o.notify {
		e.Notify = append(e.Notify, string(n))
	}
	if err := maildrop.Dir(l.Maildrop).Put(e, content, m.size()); err != nil {
		return exit{errors.Join(why, fmt.Errorf("leaving the message for the relay: %w", err)), ExTempFail}
	}
	return nil
}

// PassSMTP passes SMTP on between a program and the relay until one of them ends the session.
func PassSMTP(in io.Reader, out io.Writer, l *Local) error {
	conn, err := dialRelay(l)
	if err != nil {
		fmt.Fprint(out, "421 4.3.0 the relay is not running, try again later\r\n")
		return l.orUnknown(err)
	}
	defer conn.Close()
	if err := passSMTP(in, out, conn.(*net.TCPConn)); err != nil {
		return exitf(ExIOErr, "passing on SMTP: %w", err)
	}
	return nil
}
