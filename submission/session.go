package submission

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/quota"

	"github.com/emersion/go-smtp"
)

// transaction is one message's envelope, from MAIL on.
type transaction struct {
	id         string // unique, for the Received field and the log
	sender     envelope.Address
	recipients []envelope.Recipient
	account    account
	within     *quota.Claim // on its tenant's limits; nil while the tenant is not known
	exempt     bool         // from them, and from Admission
	utf8       bool
	helo       string // as at MAIL
	protocol   string
	ret        envelope.Ret
	envID      string
	requireTLS bool  // REQUIRETLS (RFC 8689)
	size       int64 // as declared by the client, octets; 0 when it did not
	claim      claim
	verifying  time.Duration // that the client was kept waiting for answers about its recipients
}

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
	c, cfg := s.c, &s.c.srv.cfg
	sender := c.command.path.address
	if !sender.ASCII() && !opts.UTF8 {
		return smtpError(senderNotASCII.reply())
	}
	if r := c.mayMail(sender); r != nil {
		return smtpError(*r)
	}
	if n := cfg.Limits.MessagesPerSession; n > 0 && c.client.messages >= n {
		return smtpError(tooManyMessages.reply(n))
	}
	if cfg.Memory.short() {
		return smtpError(memoryFull.reply())
	}
	if cfg.Ready != nil {
		if err := cfg.Ready(opts.Size); err != nil {
			return smtpError(storeReply(err))
		}
	}
	behalf := c.client.account
	exempt := !c.mayNameTenant() && c.exempt(&behalf, sender)
	within, r := c.claimQuotaAtMail(&behalf, opts.Size, exempt)
	if r != nil {
		return smtpError(*r)
	}
	var admitted Admitted
	if !exempt {
		if admitted, r = c.admitAtMail(&behalf, sender, opts.Size); r != nil {
			within.Drop()
			return smtpError(*r)
		}
	}
	c.client.messages++
	c.tx = &transaction{
		id:     c.client.session + "." + strconv.Itoa(c.client.messages),
		sender: sender, utf8: opts.UTF8, helo: c.helo, account: behalf, within: within, exempt: exempt,
		protocol: protocolName(c.extended, opts.UTF8, c.tls != nil, c.client.login != nil), ret: returned[opts.Return], envID: opts.EnvelopeID, size: opts.Size,
		requireTLS: opts.RequireTLS,
	}
	c.tx.claim.admitted = admitted
	return nil
}

// mayMail gives the reply that refuses the client a transaction, nil when it may have one.
func (c *conn) mayMail(sender envelope.Address) *reply.Reply {
	refuse := func(r reply.Reply) *reply.Reply { return &r }
	cfg, cl := &c.srv.cfg, c.client
	if cl.login != nil && !cfg.Auth.Still(cl.login) {
		return refuse(loginOver.reply())
	}
	if cfg.AuthRequired && cl.login == nil {
		return refuse(loginFirst.reply())
	}
	c.settle()
	if !c.maySend(sender) {
		return refuse(notSender.reply(printable(string(sender))))
	}
	return nil
}

var returned = map[smtp.DSNReturn]envelope.Ret{
	smtp.DSNReturnFull:    envelope.RetFull,
	smtp.DSNReturnHeaders: envelope.RetHeaders,
}

// Rcpt adds a recipient, if the client may relay.
func (s *session) Rcpt(_ string, opts *smtp.RcptOptions) error {
	c := s.c
	r := envelope.Recipient{Address: c.command.path.address}
	switch {
	case !c.mayRelay() && c.srv.cfg.Auth != nil:
		return smtpError(loginFirst.reply())
	case !c.mayRelay():
		return smtpError(relayDenied.reply(c.client.peer.Addr()))
	case !r.Address.ASCII() && !c.tx.utf8:
		return smtpError(rcptNotASCII.reply())
	}
	for _, n := range opts.Notify {
		r.Notify |= notify[n]
	}
	if opts.OriginalRecipient != "" {
		if hasControl([]byte(opts.OriginalRecipient)) || strings.Contains(opts.OriginalRecipient, "\t") {
			return smtpError(badORcpt.reply()) // would break the report that it goes into
		}
		r.ORcpt = strings.ToLower(string(opts.OriginalRecipientType)) + ";" + opts.OriginalRecipient
	}
	if refused := c.suppressed(r.Address); refused != nil {
		return smtpError(*refused)
	}
	if refused := c.verify(r.Address); refused != nil {
		return smtpError(*refused)
	}
	c.tx.recipients = append(c.tx.recipients, r)
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
	in := c.newIntake(c.tx)
	defer in.release()
	for !c.transfer.done {
		run, err := c.nextRun()
		if err != nil {
			return smtpError(c.contentLost(err))
		}
		in.write(run)
	}
	c.saidContent(in.size)
	return in.finish()
}

// takeChunks reads the content of all BDAT chunks. It runs on a goroutine of the library's own
// while the connection's feeds the pipe; after the last chunk that one waits for the result.
func (c *conn) takeChunks(pipe io.Reader) error {
	c.chunking.Add(1) // before the first octet, and so before Close waits
	defer c.chunking.Done()
	c.mu.Lock()
	tx := c.mu.chunks
	c.mu.Unlock()
	if tx == nil {
		return smtpError(transferAborted.reply())
	}
	in := c.newIntake(tx)
	defer in.release()
	buf := c.srv.large.Get().(*[largeBuffer]byte)
	defer c.srv.large.Put(buf)
	for kept := 0; ; {
		n, err := pipe.Read(buf[kept:])
		b := buf[:kept+n]
		if err == io.EOF {
			in.write(b)
			return in.finish()
		}
		if err != nil { // RSET, QUIT, or a chunk that was cut short
			return smtpError(transferAborted.reply())
		}
		if kept = 0; len(b) > 0 && b[len(b)-1] == '\r' { // the checker must see what follows it
			b, kept = b[:len(b)-1], 1
		}
		in.write(b)
		buf[0] = '\r'
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
		c.dropClaim()
		c.tx.within.Drop()
		c.tx = nil
	}
}

// Logout is called when the connection ends.
func (s *session) Logout() error {
	s.c.endTransaction()
	return nil
}

// setChunks says which transaction BDAT is for.
func (c *conn) setChunks(tx *transaction) {
	c.mu.Lock()
	c.mu.chunks = tx
	c.mu.Unlock()
}

// accepted tells how a message was taken: it is no error, but the way to give the reply a text.
func accepted(id envelope.ID) error {
	return smtpError(reply.Reply{Code: 250, Enhanced: reply.Enhanced{2, 0, 0}, Text: "queued as " + id.String(), Local: true})
}
