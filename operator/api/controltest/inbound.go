package controltest

import (
	"context"
	"time"

	"example.org/mta/operator/api"
)

// inboundMail is what the relay keeps of inbound mail.
func (r *Relay) inboundMail() []api.InboundMail {
	return []api.InboundMail{
		{
			ID: "0k7w1v0z8g002", Time: r.Now.Add(-20 * time.Minute), Kind: "other", Recipients: []string{"postmaster@b.example.com"},
			Sender: "ann@example.net", Peer: "198.51.100.7", Helo: "mx.example.net", Size: 95, From: "Ann <ann@example.net>", Subject: "Do you know a certain Mr. B.?",
		},
		{
			ID: "0k7w1v0z8g001", Time: r.Now.Add(-5 * time.Hour), Kind: "unsubscribe", Recipients: []string{"abuse@b.example.com"},
			Sender: "bob@example.org", Peer: "203.0.113.9", Helo: "out.example.org", Size: 60, From: "bob@example.org", Subject: "unsubscribe", Message: "0k7t9v0z8g00c",
		},
	}
}

// Inbound has two mails.
func (r *Relay) Inbound(_ context.Context, after string, limit int) (api.InboundList, error) {
	l := api.InboundList{Kept: 2, Dropped: 3}
	for _, m := range r.inboundMail() {
		switch {
		case after != "" && m.ID >= after:
		case len(l.Mail) == limit:
			l.Next = l.Mail[limit-1].ID
		default:
			l.Mail = append(l.Mail, m)
		}
	}
	return l, nil
}

// InboundMail gives one of them.
func (r *Relay) InboundMail(_ context.Context, id string) (api.InboundMail, []byte, error) {
	for _, m := range r.inboundMail() {
		if m.ID == id {
			return m, []byte("From: " + m.From + "\r\nSubject: " + m.Subject + "\r\n\r\nHello,\x1b[2J\r\n"), nil
		}
	}
	return api.InboundMail{}, nil, api.NotFound("see what is kept: mta bounce list", "no inbound mail with the id %s is kept", id)
}
