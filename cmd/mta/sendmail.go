package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/emersion/go-smtp"
	"github.com/spf13/cobra"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/mta/control"
	"example.org/mta/submission/maildrop"
)

// Exit codes of sysexits.h, which callers of sendmail know.
const (
	exOK          = 0
	exUsage       = 64 // wrong command line
	exDataErr     = 65 // wrong message
	exNoUser      = 67 // no such recipient
	exNoHost      = 68 // no such recipient's domain
	exUnavailable = 69 // refused for another reason
	exSoftware    = 70
	exOSErr       = 71
	exIOErr       = 74
	exTempFail    = 75 // nothing is wrong for good: try again later
	exNoPerm      = 77 // may not relay
)

const sendmailHelp = `usage: sendmail [-t] [-i] [-f SENDER] [-F NAME] [-N DSN] [-R RET] [-V ENVID] [RECIPIENT...]
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

func newSendmail(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:                "sendmail [-t] [-i] [-f SENDER] [RECIPIENT...]",
		Short:              "submit a message to the relay, like sendmail",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return asExit(c.sendmail(args))
		},
	}
	cmd.Long = "Behave like sendmail. A link to mta under the name sendmail does the same. 'mta sendmail --help' lists the options."
	return cmd
}

// sendmail is the program of that name.
func (c *cli) sendmail(args []string) int {
	args, err := c.commonFlags(args)
	if err != nil {
		return c.sysexit("sendmail", exUsage, err)
	}
	o, err := parseSendmail(args)
	if err != nil {
		return c.sysexit("sendmail", exUsage, err)
	}
	if o.config != "" {
		c.configFlag = o.config
	}
	switch o.mode {
	case modeHelp:
		fmt.Fprint(c.out, sendmailHelp)
		return exOK
	case modeList:
		return c.mailq(nil)
	case modeFlush:
		return c.sendmailFlush()
	case modeAliases:
		fmt.Fprintln(c.err, "sendmail: the relay has no aliases, there is nothing to build")
		return exOK
	case modeSMTP:
		return c.sendmailSMTP()
	}
	return c.sendmailSend(o)
}

// sysexit tells an error under the name that the program was called by, and gives the code.
func (c *cli) sysexit(name string, code int, err error) int {
	fmt.Fprintf(c.err, "%s: %s\n", name, strings.ReplaceAll(clean(err.Error()), "\n", "\n"+name+": "))
	hint := control.Hint(err)
	if h := (hinted{}); errors.As(err, &h) {
		hint = h.hint
	}
	if hint != "" {
		fmt.Fprintf(c.err, "%s: %s\n", name, clean(hint))
	}
	return code
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

// local is what sendmail knows of the machine.
type local struct {
	smtp     string // "ip:port" of the relay; "" when no listener begins in clear
	hostname string // for addresses without a domain, and EHLO
	user     string // who has called
	dataDir  string // of the relay; "" when it is not known whether it is on this machine
	unknown  string // why smtp and dataDir are but the defaults; "" when something names them
}

// local never fails for want of the configuration: mail must not be lost over a file that somebody
// else may be editing.
func (c *cli) local() local {
	w, err := c.find()
	known, announced := c.announced()
	switch {
	case err != nil && announced:
		w = known
	case err != nil:
		w = config.DefaultWhereabouts()
	}
	l := local{smtp: c.env("MTA_SMTP"), hostname: cmp.Or(w.Hostname, config.DefaultWhereabouts().Hostname)}
	if l.smtp == "" {
		if !announced {
			l.unknown = c.whyUnknown(&w, err)
		}
		l.dataDir = cmp.Or(w.DataDir, config.DefaultWhereabouts().DataDir)
		if w.SMTP == nil {
			w.SMTP = config.DefaultWhereabouts().SMTP
		}
		for _, address := range w.SMTP {
			if l.smtp = config.Reachable(address); l.smtp != "" {
				break
			}
		}
	}
	if u, err := user.Current(); err == nil {
		l.user = u.Username
	} else if l.user = c.env("LOGNAME"); l.user == "" {
		l.user = "nobody"
	}
	return l
}

// whyUnknown says why nothing names the place of the relay, where no relay has written it down; "" when the
// configuration does.
func (c *cli) whyUnknown(w *config.Whereabouts, err error) string {
	why := ""
	switch path := c.configPath(); {
	case err != nil:
		why = err.Error()
	case path == "" && !exists(w.DataDir):
		why = "there is no configuration at " + defaultConfig
	case w.DataDir == "" || w.SMTP == nil:
		why = "in " + path + " it depends on an environment variable that is not set"
	default:
		return ""
	}
	if len(c.wellKnown) > 0 {
		why += fmt.Sprintf(", and no relay has written relay.json into %s", strings.Join(c.wellKnown, " or "))
	}
	return why
}

// orUnknown adds to an error of what was tried that this was but a guess.
func (l *local) orUnknown(err error) error {
	if e := (exit{}); l.unknown == "" || !errors.As(err, &e) || e.code != exTempFail {
		return err
	}
	return exit{hinted{fmt.Errorf("%w\nthe place of the relay is not known, and the defaults were tried (%s, %s): %s", err, l.smtp, l.dataDir, l.unknown),
		"name its configuration with -C or in MTA_CONFIG, or its address in MTA_SMTP"}, exTempFail}
}

// qualify makes an address of what people write: one without a domain is on this machine.
func (l *local) qualify(s string) (envelope.Address, error) {
	if !strings.Contains(s, "@") {
		s += "@" + l.hostname
	}
	a, err := envelope.ParseAddress(s)
	if err != nil {
		return "", fmt.Errorf("address %q: %w", s, err)
	}
	return a, nil
}

func (c *cli) sendmailSend(o sendmailOptions) int {
	err := c.sendMessage(o)
	if err == nil {
		return exOK
	}
	code := exSoftware
	if e := (exit{}); errors.As(err, &e) {
		code = e.code
	}
	if code == exTempFail {
		fmt.Fprintln(c.err, "sendmail: the message was not sent: try again later")
	}
	return c.sysexit("sendmail", code, err)
}

func (c *cli) sendMessage(o sendmailOptions) error {
	if len(o.recipients) == 0 && !o.fromHeader {
		return exit{hinted{errors.New("nobody to send to"), "name recipients, or take them from the message with -t"}, exUsage}
	}
	l := c.local()
	sender, err := o.envelopeSender(&l)
	if err != nil {
		return err
	}
	m, err := readMessage(c.in, o.ignoreDots)
	if err != nil {
		return err
	}
	defer m.close()
	recipients, err := o.envelopeRecipients(m, &l)
	if err != nil {
		return err
	}
	author, err := o.author(sender, &l, c.env("NAME"))
	if err != nil {
		return err
	}
	m.finish(author, l.hostname)
	err = submit(&l, o, sender, recipients, m)
	if l.dataDir != "" && mayLeave(err) {
		err = leave(&l, o, sender, recipients, m, err)
	}
	return l.orUnknown(err)
}

// mayLeave reports whether the relay can take a message from the maildrop that it has not taken now: it is
// away, or wants a login, which is for who comes by SMTP.
func mayLeave(err error) bool {
	e, answer := exit{}, (*smtp.SMTPError)(nil)
	return errors.As(err, &e) && (e.code == exTempFail || errors.As(err, &answer) && answer.Code == wantsLogin)
}

// wantsLogin is the reply to who has to log in first (RFC 4954, 6).
const wantsLogin = 530

// leave puts the message where the relay finds it when it is back. why is what kept the relay from
// taking it now.
func leave(l *local, o sendmailOptions, sender envelope.Address, recipients []envelope.Address, m *message, why error) error {
	content, err := m.content()
	if err != nil {
		return err
	}
	e := maildrop.Envelope{
		Sender: sender, Recipients: recipients, Return: string(o.ret), ID: o.envid, UTF8: needsUTF8(sender, recipients, m),
	}
	for _, n := range o.notify {
		e.Notify = append(e.Notify, string(n))
	}
	if err := maildrop.Dir(filepath.Join(l.dataDir, config.Maildrop)).Put(e, content, m.size()); err != nil {
		return exit{errors.Join(why, fmt.Errorf("leaving the message for the relay: %w", err)), exTempFail}
	}
	return nil
}

// sendmailSMTP speaks SMTP between standard input and output and the relay.
func (c *cli) sendmailSMTP() int {
	l := c.local()
	conn, err := dialRelay(&l)
	if err != nil {
		fmt.Fprint(c.out, "421 4.3.0 the relay is not running, try again later\r\n")
		return c.sysexit("sendmail", exTempFail, l.orUnknown(err))
	}
	defer conn.Close()
	if err := passSMTP(c.in, c.out, conn.(*net.TCPConn)); err != nil {
		return c.sysexit("sendmail", exIOErr, fmt.Errorf("passing on SMTP: %w", err))
	}
	return exOK
}

// sendmailFlush makes everything in the queue due.
func (c *cli) sendmailFlush() int {
	client, err := c.client()
	if err != nil {
		return c.sysexit("sendmail", exUnavailable, err)
	}
	_, err = client.Change(context.Background(), control.Change{Action: control.Retry, All: true})
	switch {
	case control.Down(err), errors.Is(err, os.ErrPermission):
		return c.sysexit("sendmail", exUnavailable, err)
	case err != nil:
		return c.sysexit("sendmail", exSoftware, err)
	}
	return exOK
}
