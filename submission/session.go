package submission

import (
	"fmt"
	"io"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"

	"github.com/emersion/go-smtp"
)

// session is what the library calls for each command. Errors must be *smtp.SMTPError themselves.
type session struct{ c *conn }

func newSession(lib *smtp.Conn) (smtp.Session, error) {
	c, ok := lib.Conn().(*conn)
	if !ok {
		return nil, fmt.Errorf("connection is a %T", lib.Conn())
	}
	return &session{c}, nil
}

// Mail opens a transaction. The address comes from the gate, with its quoting.
func (s *session) Mail(_ string, opts *smtp.MailOptions) error {
	c := s.c
	if r := c.mayMail(); r != nil {
		return smtpError(*r)
	}
	c.envelope = intake.Envelope{
		Sender: c.command.path.address, UTF8: opts.UTF8, Ret: returned[opts.Return], EnvID: opts.EnvelopeID,
		RequireTLS: opts.RequireTLS, Size: opts.Size, Priority: c.command.priority,
		By: c.command.by,
	}
	m, r := c.srv.desk.Begin(c.srv.patient, c.introduced(opts.UTF8), c.envelope)
	if r != nil {
		return smtpError(*r)
	}
	c.tx = m
	return nil
}

// mayMail gives the reply that refuses the client any transaction, nil when it may have one.
func (c *conn) mayMail() *reply.Reply {
	cfg, cl := &c.srv.cfg, c.client
	if cl.login != nil && !cfg.Auth.Still(cl.login) {
		return loginOver.Refusal()
	}
	if cfg.Inbound == nil && c.mustLogIn() {
		c.refused(intake.IntrusionRelay)
		return loginFirst.Refusal()
	}
	return nil
}

// mustLogIn reports whether the client may submit nothing before it has logged in.
func (c *conn) mustLogIn() bool { return c.srv.cfg.AuthRequired && c.client.login == nil }

// introduced is the client as it stands at MAIL.
func (c *conn) introduced(utf8 bool) *intake.Client {
	cl := &c.client.Client
	cl.Helo, cl.TLS, cl.MayRelay = c.helo, c.tls, c.mayRelay()
	cl.Protocol = protocolName(c.extended, utf8, c.tls != nil, c.client.login != nil)
	return cl
}

var returned = map[smtp.DSNReturn]envelope.Ret{
	smtp.DSNReturnFull:    envelope.RetFull,
	smtp.DSNReturnHeaders: envelope.RetHeaders,
}

// Rcpt adds a recipient: one of the relay's own, or any if the client may relay.
func (s *session) Rcpt(_ string, opts *smtp.RcptOptions) error {
	c := s.c
	r := envelope.Recipient{Address: c.command.path.address}
	if refused, mine := c.receive(r); refused != nil {
		return smtpError(*refused)
	} else if mine {
		return nil
	}
	if c.mustLogIn() || !c.mayRelay() && c.srv.cfg.Auth != nil {
		c.refused(intake.IntrusionRelay)
		return smtpError(loginFirst.Reply())
	}
	for _, n := range opts.Notify {
		r.Notify |= notify[n]
	}
	if opts.OriginalRecipient != "" {
		if hasControl([]byte(opts.OriginalRecipient)) || strings.Contains(opts.OriginalRecipient, "\t") {
			return smtpError(badORcpt.Reply()) // would break the report that it goes into
		}
		r.ORcpt = strings.ToLower(string(opts.OriginalRecipientType)) + ";" + opts.OriginalRecipient
	}
	if refused := c.tx.Recipient(c.srv.ctx, r); refused != nil {
		c.refused(intake.IntrusionRelay) // of a client that may not relay, every recipient is
		return smtpError(*refused)
	}
	c.client.proved = true
	return nil
}

var notify = map[smtp.DSNNotify]envelope.Notify{
	smtp.DSNNotifyNever:   envelope.NotifyNever,
	smtp.DSNNotifySuccess: envelope.NotifySuccess,
	smtp.DSNNotifyFailure: envelope.NotifyFailure,
	smtp.DSNNotifyDelayed: envelope.NotifyDelay,
}

// Data takes the content. By DATA it comes right from conn, since the library's reader r does not
// agree with RFC 5321 on where it ends; by BDAT it comes from r, a pipe.
func (s *session) Data(r io.Reader) error {
	if pipe, ok := r.(*io.PipeReader); ok {
		return s.c.takeChunks(pipe)
	}
	return s.c.takeData()
}

// takeData reads content up to the end of DATA. Errors of reading are answered 421: the library
// would otherwise take what still comes for commands.
func (c *conn) takeData() error {
	c.early, c.command.content = false, true
	defer c.tx.Drop()
	for !c.transfer.done {
		run, err := c.nextRun()
		if err != nil {
			return smtpError(c.contentLost(err))
		}
		c.tx.Write(run) // commit answers what is wrong with it
	}
	c.saidContent(c.tx.Size())
	return c.commit(c.tx)
}

// commit makes a message durable whose content is complete, and gives the answer to the client.
func (c *conn) commit(m transaction) error {
	// Whoever pipelines must not wait for this message's filters and commit to hear of the one before.
	c.flush()
	if r := m.End(c.srv.ctx); r != nil {
		return smtpError(*r)
	}
	taken, r := m.Commit(c.srv.ctx)
	if r != nil {
		return smtpError(*r)
	}
	c.client.errors, c.client.idle = 0, 0
	if taken == nil {
		return smtpError(mailTaken.Reply())
	}
	return accepted(taken.ID)
}

// takeChunks reads the content of all BDAT chunks. It runs on a goroutine of the library's own
// while the connection's feeds the pipe; after the last chunk that one waits for the result.
func (c *conn) takeChunks(pipe io.Reader) error {
	c.chunking.Add(1) // before the first octet, and so before Close waits
	defer c.chunking.Done()
	c.mu.Lock()
	m := c.mu.chunks
	c.mu.Unlock()
	if m == nil {
		return smtpError(transferAborted.Reply())
	}
	defer m.Drop()
	buf := c.srv.large.Get().(*[largeBuffer]byte)
	defer c.srv.large.Put(buf)
	for {
		n, err := pipe.Read(buf[:])
		m.Write(buf[:n]) // commit answers what is wrong with it
		if err == io.EOF {
			return c.commit(m)
		}
		if err != nil { // RSET, QUIT, or a chunk that was cut short
			return smtpError(transferAborted.Reply())
		}
	}
}

// Reset ends the transaction, whatever it has come to. The library has closed the pipe of its chunks by
// now; whoever reads it looks at the client, which must not change meanwhile, and its result must not
// become that of the next message's chunks.
func (s *session) Reset() {
	s.c.setChunks(nil)
	s.c.chunking.Wait()
	s.c.endTransaction()
}

// endTransaction gives up what is left of the transaction.
func (c *conn) endTransaction() {
	if c.tx != nil {
		c.tx.Drop()
		c.tx = nil
	}
}

// Logout is called when the connection ends.
func (s *session) Logout() error {
	s.Reset()
	return nil
}

// setChunks sets which transaction BDAT is for.
func (c *conn) setChunks(tx transaction) {
	c.mu.Lock()
	c.mu.chunks = tx
	c.mu.Unlock()
}

// accepted returns how a message was taken: it is no error, but the way to give the reply a text.
func accepted(id envelope.ID) error {
	return smtpError(reply.Reply{Code: 250, Enhanced: reply.Enhanced{2, 0, 0},
		Text: "queued as " + id.String(), Local: true})
}
