package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestEveryClientReachesEveryServer sends with each client to each server.
func TestEveryClientReachesEveryServer(t *testing.T) {
	parallel(t)
	f := newField(t, postfix, exim, opensmtpd, smtpSink)
	host, port, _ := net.SplitHostPort(f.relay.addr)
	clients := []struct {
		name string
		send func(t *testing.T, to, content string)
	}{
		{"swaks", func(t *testing.T, to, content string) {
			runClient(t, "", need(t, "swaks")[0], "--server", host, "--port", port, "--helo", "client.example",
				"--from", "sender@client.example", "--to", to, "--data", unixText(content))
		}},
		{"swaks-pipelined", func(t *testing.T, to, content string) {
			runClient(t, "", need(t, "swaks")[0], "--server", host, "--port", port, "--helo", "client.example", "--pipeline",
				"--from", "sender@client.example", "--to", to, "--data", unixText(content))
		}},
		{"msmtp", func(t *testing.T, to, content string) {
			runClient(t, unixText(content)+"\n", need(t, "msmtp")[0], "--host="+host, "--port="+port,
				"--domain=client.example", "--from=sender@client.example", "--tls=off", "--auth=off", "--", to)
		}},
		{"python", func(t *testing.T, to, content string) {
			f.python(t, "sender@client.example", []string{to}, content)
		}},
	}
	for _, c := range clients {
		for _, s := range f.servers {
			t.Run(c.name+" to "+s.name, func(t *testing.T) {
				id := c.name + "-" + s.name
				content := letter{name: "hello", body: "Hello,\r\n.\r\n..dots\r\nbye\r\n"}.content(id)
				c.send(t, "user@"+s.domain, content)
				if err := arrived(content, s.wait(t, id, patience)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	f.relay.drained(t, patience)
}

// unixText has LF between its lines and none after the last.
func unixText(content string) string {
	return strings.TrimSuffix(strings.ReplaceAll(content, "\r\n", "\n"), "\n")
}

// TestSmtpSourceLoadReachesSmtpSinkAndPostfix has Postfix's load generator send a few thousand.
func TestSmtpSourceLoadReachesSmtpSinkAndPostfix(t *testing.T) {
	parallel(t)
	f := newField(t, smtpSink, postfix)
	source := need(t, "smtp-source")[0]
	const perServer = 1000
	for _, s := range f.servers {
		runClient(t, "", source, "-s", "20", "-m", fmt.Sprint(perServer), "-l", "2000", "-M", "client.example",
			"-f", "sender@client.example", "-t", "user@"+s.domain, f.relay.addr)
	}
	for _, s := range f.servers {
		eventually(t, patience, func() error {
			if n := len(s.messages(t)); n != perServer {
				return fmt.Errorf("%s has %d messages, want %d", s.name, n, perServer)
			}
			return nil
		})
	}
	f.relay.drained(t, patience)
	for _, s := range f.servers {
		if n := len(s.messages(t)); n != perServer {
			t.Errorf("%s has %d messages after all was settled, want %d", s.name, n, perServer)
		}
	}
}

// TestSendmailAndMailqStandInForThose runs the binary under the names that programs know.
func TestSendmailAndMailqStandInForThose(t *testing.T) {
	parallel(t)
	f := newFieldWith(t, "away MX 10 dead.away\ndead.away A 127.20.0.66\n", "", postfix)
	s := f.servers[0]
	content := letter{name: "cron", body: "Job done.\r\n.\r\n..\r\n"}.content("sendmail")
	content = strings.Replace(content, "somebody@elsewhere.example", "one@"+s.domain+", two@"+s.domain, 1)
	f.relay.as(t, "sendmail", unixText(content)+"\n", "-t", "-i", "-f", "sender@client.example")
	eventually(t, patience, func() error {
		got := make(map[string]bool)
		for _, m := range s.messages(t) {
			if err := arrived(content, m); err != nil {
				return err
			}
			got[m.field("X-Original-To")] = true
		}
		if len(got) != 2 {
			return fmt.Errorf("mail is there for %v, want two recipients", got)
		}
		return nil
	})

	f.relay.as(t, "sendmail", unixText(content)+"\n", "-i", "-f", "sender@client.example", "user@away.example")
	eventually(t, patience, func() error {
		list := f.relay.as(t, "mailq", "")
		if !strings.Contains(list, "user@away.example") || !strings.Contains(list, "connection refused") {
			return fmt.Errorf("mailq says:\n%s", list)
		}
		return nil
	})
}
