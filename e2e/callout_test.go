package e2e

import (
	"errors"
	"fmt"
	"net/smtp"
	"net/textproto"
	"strings"
	"testing"
)

// TestMailboxesAreVerifiedByTheirServers asks real servers whether their mailboxes exist.
func TestMailboxesAreVerifiedByTheirServers(t *testing.T) {
	parallel(t)
	f := newFieldWith(t, "", `
domain "postfix.example" { verify_recipients = "mailbox" }
domain "opensmtpd.example" { verify_recipients = "mailbox" }
`, postfix, opensmtpd, exim)
	c, err := smtp.Dial(f.relay.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Mail("sender@client.example"); err != nil {
		t.Fatal(err)
	}
	for _, s := range f.servers {
		if err := c.Rcpt("user@" + s.domain); err != nil {
			t.Errorf("user at %s: %v", s.name, err)
		}
		if s.name == "exim" { // nobody wants it asked
			if err := c.Rcpt("refused@" + s.domain); err != nil {
				t.Errorf("refused at %s: %v", s.name, err)
			}
			continue
		}
		// Where a slow host has no answer in time, the recipient passes.
		eventually(t, patience, func() error {
			err := c.Rcpt("refused@" + s.domain)
			var said *textproto.Error
			if !errors.As(err, &said) || said.Code != 550 || !strings.HasPrefix(said.Msg, "5.1.1 no such mailbox, its host says: 550 ") {
				return fmt.Errorf("refused at %s: %v, want 550 5.1.1 with the host's words", s.name, err)
			}
			t.Log(s.name, said)
			return nil
		})
	}
	for _, s := range f.servers {
		if n := len(s.messages(t)); n != 0 {
			t.Errorf("%d messages arrived at %s by asking", n, s.name)
		}
	}
}
