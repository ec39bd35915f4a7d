package mta

import (
	"errors"
	"net/smtp"
	"net/textproto"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
)

// rcptAt gives the code by which a recipient is answered in a new session, 250 when it is accepted.
func (w *world) rcptAt(listener, to string) (code int, text string) {
	w.t.Helper()
	c, err := smtp.Dial(listener)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if err := c.Mail("app@client.example"); err != nil {
		w.t.Fatal(err)
	}
	err = c.Rcpt(to)
	var said *textproto.Error
	switch {
	case err == nil:
		return 250, ""
	case errors.As(err, &said):
		return said.Code, said.Msg
	}
	w.t.Fatal(err)
	return 0, ""
}

// A listener that verifies refuses what the DNS denies, accepts what it doesn't say, and its mail
// goes as all mail does.
func TestS16_RecipientsAreVerifiedAtRCPT(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `
		listener "other" {
			address           = "127.0.0.1:0"
			verify_recipients = "domain"
		}
		defaults { smtp_port = PORT }
	`)
	if err := w.zone.Add(`
		self.example.    MX 10 relay.example.
		relay.example.   A  192.0.2.1
		nothing.example. TXT "no address"
		broken.example.  MX 10 mx.box.example.
		dead.example.    MX 10 mx.box.example.
	`); err != nil {
		t.Fatal(err)
	}
	w.zone.Fault("dead.example.", sink.DNSFault{Drop: true})
	w.zone.Fault("broken.example.", sink.DNSFault{Rcode: 2}) // SERVFAIL
	listeners := w.listeners.Addresses(listen.SMTP)
	for _, x := range []struct {
		to   string
		code int
		text string
	}{
		{"a@box.example", 250, ""},
		{"a@gone.example", 550, "5.1.2 the domain gone.example does not exist"},
		{"a@null.example", 556, "5.1.10 the domain null.example does not accept mail (null MX)"},
		{"a@self.example", 554, "5.4.6 mail for self.example loops back to this relay, which does not host it"},
		{"a@nothing.example", 550, "5.4.4 the domain nothing.example has neither a mail exchanger nor an address"},
		{"a@broken.example", 250, ""},
	} {
		code, text := w.rcptAt(listeners[1], x.to)
		for tries := 1; code == 250 && x.code != 250 && tries < 20; tries++ {
			code, text = w.rcptAt(listeners[1], x.to) // a look-up of more than 2 s is let pass, and is over some time
		}
		if code != x.code || text != x.text {
			t.Errorf("%s: %d %s, want %d %s", x.to, code, text, x.code, x.text)
		}
		if code, text := w.rcptAt(listeners[0], x.to); code != 250 {
			t.Errorf("%s at the listener that verifies nothing: %d %s", x.to, code, text)
		}
	}
	began := time.Now()
	if code, text := w.rcptAt(listeners[1], "a@dead.example"); code != 250 {
		t.Errorf("a domain whose name server is silent: %d %s", code, text)
	}
	if took := time.Since(began); took < time.Second || took > 10*time.Second {
		t.Errorf("the answer took %v, want about 2 s", took)
	}
	w.sendTo(listeners[1], "app@client.example", "Subject: hello\r\n\r\nHello.\r\n", "a@box.example")
	w.arrived(1)
}
