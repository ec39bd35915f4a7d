package smtpclient

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
)

// need is a message that needs something, and what becomes of it at a host that offers this.
type need struct {
	name   string
	ehlo   string // keywords with blanks between
	change func(*mail, *Config)
	envelp string // MAIL and RCPT lines with | between; "" when nothing is sent
	want   string
	status string // enhanced code of the first result
	dsn    bool
}

func (n need) run(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := "< 220 mx\n> EHLO relay.example\n< 250-mx\n"
		for _, k := range strings.Split(n.ehlo, ",") {
			s += "< 250-" + k + "\n"
		}
		s += "< 250 ENHANCEDSTATUSCODES\n"
		cfg := testConfig()
		m := newMail("Subject: x\r\n\r\nhi\r\n", "a@example.com")
		if n.change != nil {
			n.change(m, &cfg)
		}
		if n.envelp != "" {
			for line := range strings.SplitSeq(n.envelp, "|") {
				s += "> " + line + "\n< 250 ok\n"
			}
			s += "> DATA\n< 354 go\ncontent\n< 250 ok\n"
		}
		c, h := connect(t, cfg, script(s+goodbye))
		c.Send(&m.Transaction)
		if got := m.fates(t); got != n.want {
			t.Errorf("%s; want %s", got, n.want)
		}
		o := <-m.outcomes
		if n.status != "" && o.Results[0].Reply.Enhanced.String() != n.status {
			t.Errorf("%v; want %s", o.Results[0].Reply, n.status)
		}
		if o.DSN != n.dsn {
			t.Errorf("DSN %v", o.DSN)
		}
		quit(t, c, h)
	})
}

func returnPath(only int) envelope.Address {
	return envelope.Address(fmt.Sprintf("b-%d@b.example", only))
}

func TestNeeds(t *testing.T) {
	rcpts := func(m *mail, to ...string) {
		n := newMail("", to...)
		m.Message.Recipients, m.Recipients = n.Message.Recipients, n.Recipients
	}
	eightBit := func(m *mail) {
		n := newMail("Subject: x\r\n\r\n\xe4\r\n")
		m.Message.Body, m.Message.Size, m.Body = envelope.Body8BitMIME, n.Message.Size, n.Body
	}
	utf8Header := func(m *mail) {
		n := newMail("Subject: \xc3\xa4\r\n\r\nhi\r\n")
		m.Message.UTF8, m.Message.Size, m.Body = true, n.Message.Size, n.Body
	}
	for _, n := range []need{
		{name: "nothing", ehlo: "X", envelp: "MAIL FROM:<s@example.org>|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "null sender", ehlo: "SIZE", change: func(m *mail, _ *Config) { m.Message.Sender = "" },
			envelp: "MAIL FROM:<> SIZE=18|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "SIZE, fits", ehlo: "SIZE 18", envelp: "MAIL FROM:<s@example.org> SIZE=18|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "SIZE, too big", ehlo: "SIZE 17", want: "answered 552", status: "5.3.4"},
		{name: "SIZE 0 is no limit", ehlo: "SIZE 0", envelp: "MAIL FROM:<s@example.org> SIZE=18|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "DSN", ehlo: "DSN", dsn: true, change: func(m *mail, _ *Config) {
			m.Message.Ret, m.Message.EnvID = envelope.RetHeaders, "id+1=x"
			m.Message.Recipients[0].Notify = envelope.NotifySuccess | envelope.NotifyDelay
			m.Message.Recipients[0].ORcpt = "rfc822;o r@example.com"
		}, envelp: "MAIL FROM:<s@example.org> RET=HDRS ENVID=id+2B1+3Dx|RCPT TO:<a@example.com> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;o+20r@example.com", want: "answered 250"},
		{name: "return path", ehlo: "DSN,SMTPUTF8,SIZE", change: func(m *mail, _ *Config) {
			m.Message.Ret, m.Message.EnvID = envelope.RetHeaders, "id"
			m.Message.Recipients[0].Notify, m.Message.Recipients[0].ORcpt = envelope.NotifySuccess, "rfc822;o@example.com"
			m.ReturnPath = returnPath
		}, envelp: "MAIL FROM:<b-0@b.example> SIZE=18 RET=HDRS ENVID=id|RCPT TO:<a@example.com> ORCPT=rfc822;o@example.com", want: "answered 250"},
		{name: "return path of several", ehlo: "X", change: func(m *mail, _ *Config) {
			rcpts(m, "a@example.com", "b@example.com")
			m.ReturnPath = returnPath
		}, envelp: "MAIL FROM:<b--1@b.example>|RCPT TO:<a@example.com>|RCPT TO:<b@example.com>", want: "answered 250, answered 250"},
		{name: "return path of what is left of several", ehlo: "LIMITS RCPTMAX=1", change: func(m *mail, _ *Config) {
			rcpts(m, "\u00e4@example.com", "a@example.com", "b@example.com")
			m.ReturnPath = returnPath
		}, envelp: "MAIL FROM:<b-1@b.example>|RCPT TO:<a@example.com>", want: "answered 553, answered 250, excess 452", status: "5.6.7"},
		{name: "return path of a sender that is not ASCII", ehlo: "X", change: func(m *mail, _ *Config) {
			m.Message.Sender, m.ReturnPath = "\u00e4@example.org", returnPath
		}, envelp: "MAIL FROM:<b-0@b.example>|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "DSN not offered", ehlo: "X", change: func(m *mail, _ *Config) {
			m.Message.EnvID, m.Message.Recipients[0].Notify = "id", envelope.NotifySuccess
		}, envelp: "MAIL FROM:<s@example.org>|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "DSN, nothing asked", ehlo: "DSN", dsn: true, envelp: "MAIL FROM:<s@example.org>|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "BY, mode R", ehlo: "DELIVERBY 300", change: by("600;RT"),
			envelp: "MAIL FROM:<s@example.org> BY=600;RT|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "BY, mode N, late", ehlo: "DELIVERBY", change: by("-60;N"),
			envelp: "MAIL FROM:<s@example.org> BY=-60;N|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "BY, mode R, the host needs longer", ehlo: "DELIVERBY 601", change: by("600;R"), want: "answered 554", status: "5.4.7"},
		{name: "BY, mode R, not offered", ehlo: "X", change: by("600;R"), want: "answered 554", status: "5.4.7"},
		{name: "BY, mode N, not offered", ehlo: "X", change: by("600;NT"),
			envelp: "MAIL FROM:<s@example.org>|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "MT-PRIORITY", ehlo: "MT-PRIORITY STANAG4406", change: func(m *mail, _ *Config) { m.Message.Marks = []string{envelope.PriorityMark(-3)} },
			envelp: "MAIL FROM:<s@example.org> MT-PRIORITY=-3|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "MT-PRIORITY, not asked for", ehlo: "MT-PRIORITY",
			envelp: "MAIL FROM:<s@example.org>|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "MT-PRIORITY, not offered", ehlo: "X", change: func(m *mail, _ *Config) { m.Message.Marks = []string{envelope.PriorityMark(3)} },
			envelp: "MAIL FROM:<s@example.org>|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "8BITMIME", ehlo: "8BITMIME", change: func(m *mail, _ *Config) { eightBit(m) },
			envelp: "MAIL FROM:<s@example.org> BODY=8BITMIME|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "8BITMIME not offered", ehlo: "X", change: func(m *mail, _ *Config) { eightBit(m) }, want: "answered 554", status: "5.6.3"},
		{name: "8BITMIME not offered, as it is", ehlo: "X", change: func(m *mail, c *Config) { eightBit(m); c.SendEightBit = true },
			envelp: "MAIL FROM:<s@example.org>|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "8BITMIME not offered and not needed", ehlo: "X", change: func(m *mail, _ *Config) { m.Message.Body = envelope.Body8BitMIME },
			envelp: "MAIL FROM:<s@example.org>|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "8BITMIME not offered, content can't be read", ehlo: "X", change: func(m *mail, _ *Config) {
			m.Message.Body, m.Body = envelope.Body8BitMIME, cannotOpen
		}, want: "failed 451", status: "4.3.0"},
		{name: "SMTPUTF8", ehlo: "SMTPUTF8,8BITMIME", change: func(m *mail, _ *Config) {
			utf8Header(m)
			m.Message.Sender = "ä@bücher.example"
			rcpts(m, "ö@example.com")
		}, envelp: "MAIL FROM:<ä@bücher.example> SMTPUTF8|RCPT TO:<ö@example.com>", want: "answered 250"},
		{name: "SMTPUTF8 asked for and not needed", ehlo: "X", change: func(m *mail, _ *Config) { m.Message.UTF8 = true },
			envelp: "MAIL FROM:<s@example.org>|RCPT TO:<a@example.com>", want: "answered 250"},
		{name: "SMTPUTF8 not offered, domain goes as A-label", ehlo: "X", change: func(m *mail, _ *Config) {
			m.Message.UTF8, m.Message.Sender = true, "s@bücher.example"
			rcpts(m, "a@bücher.example")
		}, envelp: "MAIL FROM:<s@xn--bcher-kva.example>|RCPT TO:<a@xn--bcher-kva.example>", want: "answered 250"},
		{name: "SMTPUTF8 not offered, sender needs it", ehlo: "X", change: func(m *mail, _ *Config) { m.Message.UTF8, m.Message.Sender = true, "ä@example.org" },
			want: "answered 550", status: "5.6.7"},
		{name: "SMTPUTF8 not offered, a recipient needs it", ehlo: "X", change: func(m *mail, _ *Config) { rcpts(m, "ä@example.com", "b@example.com") },
			envelp: "MAIL FROM:<s@example.org>|RCPT TO:<b@example.com>", want: "answered 553, answered 250", status: "5.6.7"},
		{name: "SMTPUTF8 not offered, header needs it", ehlo: "X", change: func(m *mail, _ *Config) { utf8Header(m) }, want: "answered 550", status: "5.6.9"},
		{name: "SMTPUTF8 not asked for, a recipient needs it", ehlo: "SMTPUTF8", change: func(m *mail, _ *Config) { rcpts(m, "ä@example.com") },
			envelp: "MAIL FROM:<s@example.org> SMTPUTF8|RCPT TO:<ä@example.com>", want: "answered 250"},
		{name: "RCPTMAX", ehlo: "LIMITS RCPTMAX=2 FOO=1", change: func(m *mail, _ *Config) { rcpts(m, "a@x", "b@x", "c@x", "d@x") },
			envelp: "MAIL FROM:<s@example.org>|RCPT TO:<a@x>|RCPT TO:<b@x>", want: "answered 250, answered 250, excess 452, excess 452"},
		{name: "RCPTDOMAINMAX", ehlo: "LIMITS RCPTDOMAINMAX=1", change: func(m *mail, _ *Config) { rcpts(m, "a@x", "b@y", "c@x") },
			envelp: "MAIL FROM:<s@example.org>|RCPT TO:<a@x>|RCPT TO:<c@x>", want: "answered 250, excess 452, answered 250"},
		{name: "a command in the sender", ehlo: "X", change: func(m *mail, _ *Config) { m.Message.Sender = "a@b>\r\nRSET\r\nMAIL FROM:<x@y" }, want: "answered 553", status: "5.1.7"},
		{name: "a command in a recipient", ehlo: "X", change: func(m *mail, _ *Config) { rcpts(m, "a@b>\r\nRSET\r\n<x@y") }, want: "answered 553", status: "5.1.3"},
		{name: "parameters in a recipient", ehlo: "X", change: func(m *mail, _ *Config) { rcpts(m, "a@b> NOTIFY=NEVER") }, want: "answered 553", status: "5.1.3"},
		{name: "a quoted recipient", ehlo: "X", change: func(m *mail, _ *Config) { rcpts(m, `"a> b"@example.com`) },
			envelp: `MAIL FROM:<s@example.org>|RCPT TO:<"a> b"@example.com>`, want: "answered 250"},
	} {
		t.Run(n.name, n.run)
	}
}

func TestMailMax(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		one := "> MAIL*\n< 250 ok\n> RCPT*\n< 250 ok\n> DATA\n< 354 go\ncontent\n< 250 ok\n"
		c, h := connect(t, testConfig(), script(greeted("< 250-mx\n< 250 LIMITS MAILMAX=2\n")+one+one+"> QUIT\n< 221 bye\n"))
		var mails []*mail
		for i := range 4 {
			m := newMail(smallContent, "a@example.com")
			if taken := c.Send(&m.Transaction); taken {
				mails = append(mails, m)
			} else if i < 3 { // which finds the session used up: the fourth can come after that
				t.Errorf("message %d is not taken", i+1)
			}
		}
		for i, want := range []string{"answered 250", "answered 250", "untried 421", "untried 421"}[:len(mails)] {
			if got := mails[i].fates(t); got != want {
				t.Errorf("message %d: %s", i+1, got)
			}
		}
		if c.Send(&newMail("", "a@b").Transaction) || c.ready() {
			t.Error("a session that is used up takes more")
		}
		<-c.Ended() // without being told to
		<-h.done
		if c.Err() != nil || c.served() != 2 {
			t.Error(c.Err(), c.served())
		}
	})
}

func TestORcpt(t *testing.T) {
	for _, test := range []struct {
		in   string
		utf8 bool
		want string
	}{
		{"", false, ""},
		{"rfc822", false, ""},
		{"rfc822;a@b", false, " ORCPT=rfc822;a@b"},
		{"rfc822;a+b=c@d", false, " ORCPT=rfc822;a+2Bb+3Dc@d"},
		{"utf-8;ä+@b", false, ` ORCPT=utf-8;\x{E4}\x{2B}@b`},
		{"utf-8;ä+@b", true, ` ORCPT=utf-8;ä\x{2B}@b`},
		{"rfc822;ä@b", true, " ORCPT=utf-8;ä@b"},
		{"rfc822;a\r\nRSET@b", false, " ORCPT=rfc822;a+0D+0ARSET@b"},
	} {
		if got := string(appendORcpt(nil, test.in, test.utf8)); got != test.want {
			t.Errorf("%q: %q; want %q", test.in, got, test.want)
		}
	}
}

// by has the message come with BY.
func by(value string) func(*mail, *Config) {
	return func(m *mail, _ *Config) {
		b, _ := envelope.ParseBy(value, time.Now())
		m.Message.Marks = []string{b.Mark()}
	}
}
