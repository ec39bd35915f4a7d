package smtpclient

import (
	"testing"

	"example.org/mta/internal/bubble"
)

// A transaction without a body asks about its recipients and sends no content, in every mode, and mail goes on
// after it.
func TestAskingAboutRecipients(t *testing.T) {
	const sent = "< 354 go\ncontent\n< 250 queued\n"
	for name, c := range map[string]struct{ ehlo, script string }{
		"lock-step": {ehloOnly, `
			> MAIL FROM:<s@example.org>
			silence
			< 250 ok
			> RCPT TO:<a@example.com>
			silence
			< 250 2.1.5 ok
			> RCPT TO:<b@example.com>
			silence
			< 550 5.1.1 no such user
			> RSET
			< 250 ok
			> MAIL FROM:<s@example.org>
			< 250 ok
			> RCPT TO:<a@example.com>
			< 250 ok
			> DATA
			` + sent + goodbye},
		"pipelined": {pipelining, `
			> MAIL FROM:<s@example.org>*
			> RCPT TO:<a@example.com>
			> RCPT TO:<b@example.com>
			> RSET
			> MAIL FROM:<s@example.org>*
			> RCPT TO:<a@example.com>
			> DATA
			< 250 ok
			< 250 2.1.5 ok
			< 550 5.1.1 no such user
			< 250 reset
			< 250 ok
			< 250 ok
			` + sent + goodbye},
		"chunked": {chunking, `
			> MAIL FROM:<s@example.org>*
			> RCPT TO:<a@example.com>
			> RCPT TO:<b@example.com>
			> RSET
			< 250 ok
			< 250 2.1.5 ok
			< 550 5.1.1 no such user
			< 250 reset
			> MAIL FROM:<s@example.org>*
			> RCPT TO:<a@example.com>
			> BDAT*
			octets 21
			< 250 ok
			< 250 ok
			< 250 queued
			` + goodbye},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				client, h := connect(t, testConfig(), script(greeted(c.ehlo)+untilAllAreSent+c.script))
				ask, letter := newMail(smallContent, "a@example.com", "b@example.com"), newMail(smallContent, "a@example.com")
				ask.Body = nil
				client.Send(&ask.Transaction)
				client.Send(&letter.Transaction)
				if got := ask.fates(t); got != "answered 250, answered 550" {
					t.Errorf("asked: %s", got)
				}
				client.Finish()
				if got := letter.fates(t); got != "answered 250" {
					t.Errorf("the message after it: %s", got)
				}
				quit(t, client, h)
				if ask.settled != 1 || client.served() != 1 {
					t.Errorf("Done was called %d times, and %d messages count as served", ask.settled, client.served())
				}
			})
		})
	}
}
