package sendmail

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/emersion/go-smtp"

	"example.org/mta/internal/envelope"
)

// greetingTime is how long the relay may take for its greeting where the message can be left instead: what
// says nothing may want TLS, or a PROXY header.
const greetingTime = 10 * time.Second

func dialRelay(l *Local) (net.Conn, error) {
	if l.SMTP == "" {
		return nil, exitf(ExTempFail, "no listener of the relay begins in clear text")
	}
	conn, err := (&net.Dialer{Timeout: 30 * time.Second}).Dial("tcp", l.SMTP)
	if err != nil {
		return nil, exit{hinted{fmt.Errorf("connecting to the relay: %w", err),
			"is the relay running? start it with: mta serve"}, ExTempFail}
	}
	return conn, nil
}

// submit sends m to all recipients or to none: who runs the command again after an error sends
// to nobody twice.
func submit(l *Local, o Options, sender envelope.Address, recipients []envelope.Address, m *message) error {
	conn, err := dialRelay(l)
	if err != nil {
		return err
	}
	client := smtp.NewClient(conn)
	usual := client.CommandTimeout
	if l.Maildrop != "" {
		client.CommandTimeout = greetingTime
	}
	defer client.Close()
	err = client.Hello(l.Hostname)
	client.CommandTimeout = usual
	if err != nil {
		return refused("greeting", err)
	}
	options := &smtp.MailOptions{Size: m.size(), Return: o.ret, EnvelopeID: o.envid,
		UTF8: needsUTF8(sender, recipients, m)}
	if ok, _ := client.Extension("SMTPUTF8"); options.UTF8 && !ok {
		return exitf(ExUnavailable, "the message has addresses or headers in UTF-8, and the relay takes none")
	}
	if err := client.Mail(string(sender), options); err != nil {
		return refused("sender "+"<"+string(sender)+">", err)
	}
	if err := addRecipients(client, o, recipients); err != nil {
		return err
	}
	if err := sendContent(client, m); err != nil {
		return err
	}
	_ = client.Quit() // the message is the relay's by now, whatever becomes of the connection
	return nil
}

func needsUTF8(sender envelope.Address, recipients []envelope.Address, m *message) bool {
	need := !sender.ASCII() || m.utf8()
	for _, r := range recipients {
		need = need || !r.ASCII()
	}
	return need
}

// addRecipients goes on after a refusal, so that all refusals are reported at once.
func addRecipients(client *smtp.Client, o Options, recipients []envelope.Address) error {
	var refusals []error
	code := ExOK
	for _, r := range recipients {
		err := client.Rcpt(string(r), &smtp.RcptOptions{Notify: o.notify})
		if err == nil {
			continue
		}
		err = refused("recipient "+"<"+string(r)+">", err)
		refusals = append(refusals, err)
		// What is wrong for good says more than what may pass.
		if e := (exit{}); errors.As(err, &e) && (code == ExOK || code == ExTempFail) {
			code = e.code
		}
		if s := (*smtp.SMTPError)(nil); !errors.As(err, &s) || s.Code == 421 || len(refusals) == 10 {
			break
		}
	}
	if len(refusals) == 0 {
		return nil
	}
	return exit{errors.Join(refusals...), code}
}

func sendContent(client *smtp.Client, m *message) error {
	w, err := client.Data()
	if err != nil {
		return refused("message", err)
	}
	content, err := m.content()
	if err != nil {
		return err // and the connection closes without the final dot
	}
	if _, err := io.Copy(w, content); err != nil {
		return refused("message", err)
	}
	if _, err := w.CloseWithResponse(); err != nil {
		return refused("message", err)
	}
	return nil
}

// refused makes an exit code of the relay's answer; without an answer it may pass.
func refused(what string, err error) error {
	answer := (*smtp.SMTPError)(nil)
	if !errors.As(err, &answer) {
		return exitf(ExTempFail, "%s: speaking to the relay: %w", what, err)
	}
	text := fmt.Sprintf("%d ", answer.Code)
	if e := answer.EnhancedCode; e[0] > 0 {
		text += fmt.Sprintf("%d.%d.%d ", e[0], e[1], e[2])
	}
	return exit{&answered{fmt.Sprintf("%s: the relay refused: %s%s", what, text,
		strings.ReplaceAll(answer.Message, "\n", " / ")), answer}, sysexitOf(answer)}
}

// answered is a refusal in words.
type answered struct {
	text   string
	answer *smtp.SMTPError
}

func (a *answered) Error() string { return a.text }
func (a *answered) Unwrap() error { return a.answer }

// sysexitOf puts a reply into the words of sysexits.h, by its enhanced code (RFC 3463).
func sysexitOf(e *smtp.SMTPError) int {
	if e.Code < 500 {
		return ExTempFail
	}
	switch subject, detail := e.EnhancedCode[1], e.EnhancedCode[2]; subject {
	case 1:
		switch detail {
		case 2, 8, 10:
			return ExNoHost
		case 3, 7:
			return ExDataErr
		}
		return ExNoUser
	case 6:
		return ExDataErr
	case 7:
		return ExNoPerm
	}
	return ExUnavailable
}
