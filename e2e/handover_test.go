package e2e

import (
	"context"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"strings"
	"testing"

	"example.org/mta/lab/sink"
)

// TestHandOverFromPostfix: the commands of docs/moving.md empty the queue of a Postfix into the relay, whatever Postfix
// demands of hosts outside: TLS, sources, a delay between messages.
func TestHandOverFromPostfix(t *testing.T) {
	parallel(t)
	const messages = 40
	addr := ownAddress(t, 26, "25")
	old, _ := postfixWithServices(t, "", addr, "25", `inet_protocols = ipv4
virtual_mailbox_domains =
virtual_mailbox_maps =
smtpd_recipient_restrictions = check_recipient_access inline:{held@d.example=HOLD}, permit_mynetworks, reject
relayhost = [127.0.0.1]:1
default_transport = randmap:{smtp:, other:}
default_destination_rate_delay = 1s
smtp_tls_security_level = encrypt
`, "other unix - - n - - smtp -o smtp_bind_address=127.25.0.30\n")
	for i := range messages {
		to := "bob@d.example"
		if i%10 == 0 {
			to = "held@d.example"
		}
		text := fmt.Sprintf("X-Mta-Test-Id: old-%d\r\nSubject: x\r\n\r\nx\r\n", i)
		if err := smtp.SendMail(net.JoinHostPort(addr, "25"), nil, "ann@a.example", []string{to}, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}

	host, took := exchanger(t)
	r := newRelay(t, "127.0.0.1", "25", fmt.Sprintf("domain \"*\" {\n  route = [\"smtp://%s\"]\n}\n", host))
	r.start(t)
	page, err := os.ReadFile("../docs/moving.md")
	if err != nil {
		t.Fatal(err)
	}
	_, commands, _ := strings.Cut(string(page), "```sh\npostconf -M 'handover")
	commands, _, ok := strings.Cut("postconf -M 'handover"+commands, "```")
	if _, port, err := net.SplitHostPort(r.addr); err == nil {
		commands = strings.ReplaceAll(commands, ":2525", ":"+port)
	}
	// The master process takes a reload late, as on a busy machine.
	commands = strings.Replace(commands, "postfix reload", `master=$(tr -d ' ' <"$(postconf -h queue_directory)/pid/master.pid")
kill -STOP $master
(sleep 3; kill -CONT $master) &
postfix reload`, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sh := exec.CommandContext(ctx, "sh", "-ec", commands)
	sh.Env = append(os.Environ(), "MAIL_CONFIG="+old.config)
	if out, err := sh.CombinedOutput(); err != nil || !ok {
		t.Fatalf("%v\n%s%s", err, commands, out)
	}
	eventually(t, patience, func() error {
		if n := len(took.Messages()); n != messages {
			return fmt.Errorf("%d of %d messages have arrived", n, messages)
		}
		return nil
	})
}

// exchanger is a mail exchanger on any port of loopback, and what it took.
func exchanger(t *testing.T) (addr string, took *sink.Recorder) {
	t.Helper()
	took = sink.NewRecorder(sink.Contents, 0)
	return mailHost(t, "127.0.0.1:0", sink.Config{Hostname: "mx.example", Recorder: took}), took
}
