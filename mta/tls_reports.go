package mta

import (
	"time"

	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/destdb"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
)

// openTLSReports begins to count for TLS reports, when the configuration has them sent.
func (r *mailOut) openTLSReports(cfg *config.Config, _ *undoer) (err error) {
	t := cfg.TLSReports
	if !t.On() {
		return nil
	}
	r.tlsReports, err = tlsrpt.New(tlsrpt.Config{
		Organization: t.Organization, Contact: t.Contact, Submitter: cfg.Hostname, From: t.From,
		Resolver: textResolver{r.resolver}, Store: r.destinations.Values(destdb.TLSReports), Mail: r.mailTLSReport,
		MaxAge: func(domain string) time.Duration {
			if s, _ := r.sts.Status(domain); s.Policy != nil {
				return s.Policy.MaxAge
			}
			return 0
		},
		Transport: tlsrpt.NewTransport(cfg.Router.AllowLoopback, r.router.Addresses), Now: r.now, Log: r.log,
	})
	return err
}

// mailTLSReport puts a TLS report into the queue.
func (r *mailOut) mailTLSReport(mail tlsrpt.Mail) error {
	m := &envelope.Message{
		Sender: envelope.Address(mail.From), Recipients: []envelope.Recipient{{Address: envelope.Address(mail.To)}},
		Tier: 5, TLSOptional: true, Received: r.now(), Protocol: envelope.LocalProtocol,
	}
	draft := r.queue.Begin()
	if _, err := draft.Write(mail.Content); err != nil {
		draft.Abort()
		return err
	}
	r.events.Accepting(m)
	if err := draft.Commit(m); err != nil {
		r.events.Refused(m)
		return err
	}
	r.events.Received(m)
	return nil
}
