package sendmail

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission"
	"example.org/mta/submission/intake"
)

// letters is a store that keeps what was accepted.
type letters []string

func (l *letters) Begin(intake.Owner, int64) intake.Draft { return &letter{all: l} }

type letter struct {
	bytes.Buffer
	all *letters
}

func (l *letter) Commit(*envelope.Message) error {
	*l.all = append(*l.all, l.String())
	return nil
}
func (l *letter) Abort() {}

// A program on a pipe says all at once, in CRLF or in LF. The relay refuses that over TCP.
func TestSendmailTakesAllCommandsAtOnce(t *testing.T) {
	const script = "EHLO me\nMAIL FROM:<a@example.org>\nRCPT TO:<b@example.net>\nDATA\nSubject: x\n\n..dot\n.\n" +
		"MAIL FROM:<a@example.org>\nRCPT TO:<b@example.net>\nDATA\nSubject: y\n\n.\nQUIT\n"
	crlf := strings.ReplaceAll(script, "\n", "\r\n")
	for _, c := range []struct {
		name, in string
		want     []string
		says     string
	}{
		{"LF", script, []string{"Subject: x\r\n\r\n.dot\r\n", "Subject: y\r\n\r\n"}, "221 2.0.0 closing connection\r\n"},
		{"CRLF", crlf, []string{"Subject: x\r\n\r\n.dot\r\n", "Subject: y\r\n\r\n"}, "221 2.0.0 closing connection\r\n"},
		{"no QUIT", strings.TrimSuffix(crlf, "QUIT\r\n"), []string{"Subject: x\r\n\r\n.dot\r\n", "Subject: y\r\n\r\n"}, ""},
		{"LF . LF within CRLF is content", strings.Replace(crlf, "..dot", "evil\n.\nMAIL FROM:<evil@example.org>", 1), nil,
			"550 5.6.11 message has a CR or LF that stands alone; lines must end in CRLF\r\n"},
		{"BDAT", "EHLO me\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.net>\r\nBDAT 14 LAST\r\nSubject: z\r\n\r\nQUIT\r\n",
			[]string{"Subject: z\r\n\r\n"}, "221 2.0.0 closing connection\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stored letters
			server := submission.New(submission.Config{Intake: intake.Config{Hostname: "relay.example", Store: &stored}, RelayFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var out bytes.Buffer
			if err := passSMTP(strings.NewReader(c.in), &out, conn.(*net.TCPConn)); err != nil {
				t.Error(err)
			}
			if !strings.HasSuffix(out.String(), c.says) {
				t.Errorf("the relay said\n%s", out.String())
			}
			if err := server.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			<-served
			for i, want := range c.want {
				if i >= len(stored) || !strings.HasSuffix(stored[i], want) {
					t.Fatalf("message %d: stored %q, said\n%s", i, stored, out.String())
				}
			}
			if len(stored) != len(c.want) {
				t.Errorf("stored %d messages, want %d: %q", len(stored), len(c.want), stored)
			}
		})
	}
}
