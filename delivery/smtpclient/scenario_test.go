package smtpclient

import (
	"errors"
	"strings"
	"testing"

	"example.org/mta/internal/bubble"
)

// scenario is one conversation: what the host does after its EHLO reply, and what becomes of
// each message.
type scenario struct {
	name string
	// script ends the conversation, or goes on to "> QUIT".
	script string
	mails  []string // recipients of each message, local parts at example.com, with blanks between
	want   []string // fates of each message
	err    error    // in the chain of Conn.Err; nil: any error but ErrOutOfStep, or none
	window Window
	mode   Mode
}

func (s scenario) run(t *testing.T, ehlo string) {
	bubble.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Window, cfg.MaxMode = s.window, s.mode
		c, h := connect(t, cfg, script(greeted(ehlo)+untilAllAreSent+s.script))
		var mails []*mail
		for _, to := range s.mails {
			var addresses []string
			for _, local := range strings.Fields(to) {
				addresses = append(addresses, local+"@example.com")
			}
			m := newMail(smallContent, addresses...)
			mails = append(mails, m)
			if !c.Send(&m.Transaction) {
				t.Fatal("Send refused")
			}
		}
		if strings.Contains(s.script, "> QUIT") && !strings.HasSuffix(s.script, goodbye) {
			c.Finish()
		}
		for i, m := range mails {
			if got := m.fates(t); got != s.want[i] {
				t.Errorf("message %d: %s; want %s", i+1, got, s.want[i])
			}
		}
		quit(t, c, h)
		for i, m := range mails {
			if m.settled != 1 {
				t.Errorf("message %d: Done was called %d times", i+1, m.settled)
			}
		}
		if err := c.Err(); s.err != nil && !errors.Is(err, s.err) || s.err == nil && errors.Is(err, ErrOutOfStep) {
			t.Errorf("Err: %v; want %v", err, s.err)
		}
		if c.Len() != 0 || c.ready() {
			t.Errorf("after the end: Len %d, Ready %v", c.Len(), c.ready())
		}
	})
}

func runScenarios(t *testing.T, ehlo string, all []scenario) {
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) { s.run(t, ehlo) })
	}
}

// untilAllAreSent keeps the host quiet until the test has handed over all messages: virtual time
// stands still before.
const untilAllAreSent = "pause 1ms\n"

const goodbye = "> QUIT\n< 221 bye\nclose\n"

func TestLockStep(t *testing.T) {
	const (
		mail = "> MAIL FROM:<s@example.org>\nsilence\n< 250 2.1.0 ok\n"
		rcpt = "> RCPT TO:<a@example.com>\nsilence\n< 250 2.1.5 ok\n"
		data = "> DATA\nsilence\n< 354 go\ncontent: Subject: x||hello\nsilence\n"
	)
	runScenarios(t, ehloOnly, []scenario{
		{
			name:   "one message",
			script: mail + rcpt + data + "< 250 2.0.0 queued as 1\n" + goodbye,
			mails:  []string{"a"}, want: []string{"answered 250"},
		},
		{
			name:   "two messages, no RSET between them",
			script: mail + rcpt + data + "< 250 1\n" + mail + rcpt + data + "< 250 2\n" + goodbye,
			mails:  []string{"a", "a"}, want: []string{"answered 250", "answered 250"},
		},
		{
			name:   "some recipients refused",
			script: mail + rcpt + "> RCPT TO:<b@example.com>\n< 550 5.1.1 who\n> RCPT TO:<c@example.com>\n< 451 later\n" + data + "< 250 ok\n" + goodbye,
			mails:  []string{"a b c"}, want: []string{"answered 250, answered 550, answered 451"},
		},
		{
			name:   "all recipients refused: no DATA, and RSET before the next",
			script: mail + "> RCPT TO:<b@example.com>\n< 550 5.1.1 who\n> RSET\nsilence\n< 250 ok\n" + mail + rcpt + data + "< 250 ok\n" + goodbye,
			mails:  []string{"b", "a"}, want: []string{"answered 550", "answered 250"},
		},
		{
			name:   "MAIL refused: no RSET needed",
			script: "> MAIL*\n< 451 4.7.1 wait\n" + mail + rcpt + data + "< 250 ok\n" + goodbye,
			mails:  []string{"a", "a"}, want: []string{"answered 451", "answered 250"},
		},
		{
			name:   "DATA refused",
			script: mail + rcpt + "> DATA\n< 451 no room\n> RSET\n< 250 ok\n" + mail + rcpt + data + "< 250 ok\n" + goodbye,
			mails:  []string{"a", "a"}, want: []string{"answered 451", "answered 250"},
		},
		{
			name:   "content refused",
			script: mail + rcpt + data + "< 554 5.7.1 spam\n" + mail + rcpt + data + "< 250 ok\n" + goodbye,
			mails:  []string{"a", "a"}, want: []string{"answered 554", "answered 250"},
		},
		{
			name:   "too many recipients",
			script: mail + rcpt + "> RCPT TO:<b@example.com>\n< 452 4.5.3 too many\n" + data + "< 250 ok\n" + goodbye,
			mails:  []string{"a b c"}, want: []string{"answered 250, excess 452, excess 452"},
		},
		{
			name:   "452 for the first recipient is about that recipient",
			script: mail + "> RCPT TO:<b@example.com>\n< 452 4.5.3 too many\n" + rcpt + data + "< 250 ok\n" + goodbye,
			mails:  []string{"b a"}, want: []string{"answered 452, answered 250"},
		},
		{
			name:   "452 4.2.2 is a full mailbox",
			script: mail + rcpt + "> RCPT TO:<b@example.com>\n< 452 4.2.2 full\n" + data + "< 250 ok\n" + goodbye,
			mails:  []string{"a b"}, want: []string{"answered 250, answered 452"},
		},
		{
			name:   "421 to MAIL on a fresh connection is an answer",
			script: "> MAIL*\n< 421 4.7.0 go away\nclose\n",
			mails:  []string{"a", "a"}, want: []string{"answered 421", "untried 421"},
		},
		{
			name:   "421 to MAIL on a used connection is not",
			script: mail + rcpt + data + "< 250 ok\n> MAIL*\n< 421 4.7.0 enough\nclose\n",
			mails:  []string{"a", "a", "a"}, want: []string{"answered 250", "untried 421", "untried 421"},
		},
		{
			name:   "421 to RCPT keeps what was refused before",
			script: mail + "> RCPT*\n< 550 no\n> RCPT*\n< 421 bye\nclose\n",
			mails:  []string{"a b c"}, want: []string{"answered 550, answered 421, answered 421"},
		},
		{
			name:   "421 to the content",
			script: mail + rcpt + data + "< 421 4.3.2 shutting down\nclose\n",
			mails:  []string{"a", "b"}, want: []string{"answered 421", "untried 421"},
		},
		{
			name:   "closed after MAIL",
			script: "> MAIL*\nclose\n",
			mails:  []string{"a", "b"}, want: []string{"failed 421", "untried 421"},
		},
		{
			name:   "closed after the content: in doubt",
			script: mail + rcpt + data + "close\n",
			mails:  []string{"a", "b"}, want: []string{"ambiguous 421", "untried 421"},
		},
		{
			name:   "closed on a used connection",
			script: mail + rcpt + data + "< 250 ok\n> MAIL*\nclose\n",
			mails:  []string{"a", "b"}, want: []string{"answered 250", "untried 421"},
		},
		{
			name:   "refusals stay when the content is in doubt",
			script: mail + rcpt + "> RCPT*\n< 550 no\n" + data + "close\n",
			mails:  []string{"a b"}, want: []string{"ambiguous 421, answered 550"},
		},
		{
			name:   "no reply to RCPT in time",
			script: mail + "> RCPT*\npause 299s\nsilence\npause 2s\ngone\n",
			mails:  []string{"a"}, want: []string{"failed 421"},
		},
		{
			name:   "no reply to DATA in time, which is less than what MAIL had",
			script: mail + rcpt + "> DATA\npause 119s\nsilence\npause 2s\ngone\n",
			mails:  []string{"a"}, want: []string{"failed 421"},
		},
		{
			name:   "no reply to the content in time",
			script: mail + rcpt + data + "pause 599s\nsilence\npause 2s\ngone\n",
			mails:  []string{"a"}, want: []string{"ambiguous 421"},
		},
		{
			name:   "a reply that takes nearly its time after many others did",
			script: mail + strings.Repeat("> RCPT*\npause 290s\n< 250 ok\n", 3) + "> DATA\npause 110s\n< 354 go\ncontent\npause 590s\n< 250 ok\n" + goodbye,
			mails:  []string{"a b c"}, want: []string{"answered 250, answered 250, answered 250"},
		},
		{
			name:   "out of step: 250 to DATA",
			script: mail + rcpt + "> DATA\n< 250 ok\neof\n",
			mails:  []string{"a"}, want: []string{"failed 451"}, err: ErrOutOfStep,
		},
		{
			name:   "out of step: 354 to MAIL",
			script: "> MAIL*\n< 354 go\neof\n",
			mails:  []string{"a"}, want: []string{"failed 451"}, err: ErrOutOfStep,
		},
		{
			name:   "out of step: a reply too many",
			script: mail + "> RCPT*\n< 250 ok\n< 250 ok\neof\n",
			mails:  []string{"a"}, want: []string{"failed 451"}, err: ErrOutOfStep,
		},
		{
			name:   "out of step: not a reply",
			script: "> MAIL*\n< * OK IMAP4rev1 here\neof\n",
			mails:  []string{"a"}, want: []string{"failed 451"}, err: ErrOutOfStep,
		},
		{
			name:   "out of step: codes differ within a reply",
			script: "> MAIL*\n< 250-one\n< 550 two\neof\n",
			mails:  []string{"a"}, want: []string{"failed 451"}, err: ErrOutOfStep,
		},
		{
			name:   "out of step: a line without end",
			script: "> MAIL*\n< 250 " + strings.Repeat("x", 5000) + "\neof\n",
			mails:  []string{"a"}, want: []string{"failed 451"}, err: ErrOutOfStep,
		},
		{
			name:   "out of step: lines without end",
			script: "> MAIL*\n" + strings.Repeat("< 250-"+strings.Repeat("x", 100)+"\n", 400) + "eof\n",
			mails:  []string{"a"}, want: []string{"failed 451"}, err: ErrOutOfStep,
		},
		{
			name:   "out of step after the content: in doubt",
			script: mail + rcpt + data + "< 354 go on\neof\n",
			mails:  []string{"a"}, want: []string{"ambiguous 451"}, err: ErrOutOfStep,
		},
		{
			name:   "out of step: the content answered as QUIT would be",
			script: mail + rcpt + data + "< 221 bye\nclose\n",
			mails:  []string{"a", "b"}, want: []string{"ambiguous 451", "untried 451"}, err: ErrOutOfStep,
		},
		{
			name:   "out of step: 220 to RCPT",
			script: mail + "> RCPT*\n< 220 again\neof\n",
			mails:  []string{"a"}, want: []string{"failed 451"}, err: ErrOutOfStep,
		},
		{
			name:   "success with a code that is not 250",
			script: mail + "> RCPT TO:<a@example.com>\n< 251 will forward\n" + data + "< 200 fine\n" + goodbye,
			mails:  []string{"a"}, want: []string{"answered 200"},
		},
		{
			name:   "503 is believed where it can't be due to haste",
			script: mail + rcpt + "> DATA\n< 503 5.7.0 authenticate first\n> QUIT\n< 221 bye\nclose\n",
			mails:  []string{"a"}, want: []string{"answered 503"},
		},
		{
			name:   "RSET refused",
			script: mail + "> RCPT*\n< 550 no\n> RSET\n< 500 what\neof\n",
			mails:  []string{"a", "b"}, want: []string{"answered 550", "failed 421"},
		},
		{
			name:   "QUIT is answered by closing",
			script: mail + rcpt + data + "< 250 ok\n> QUIT\nclose\n",
			mails:  []string{"a"}, want: []string{"answered 250"},
		},
		{
			name:   "QUIT is not answered",
			script: mail + rcpt + data + "< 250 ok\n> QUIT\neof\n",
			mails:  []string{"a"}, want: []string{"answered 250"},
		},
		{
			name:   "multi-line replies",
			script: "> MAIL*\n< 250-2.1.0 yes\n< 250-2.1.0 really\n< 250 2.1.0 ok\n" + rcpt + data + "< 250-ok\n< 250\n" + goodbye,
			mails:  []string{"a"}, want: []string{"answered 250"},
		},
	})
}

func TestPipelined(t *testing.T) {
	const (
		mail = "> MAIL FROM:<s@example.org> SIZE=21\n"
		rcpt = "> RCPT TO:<a@example.com>\n"
		one  = mail + rcpt + "> DATA\nsilence\n"
		yes  = "< 250 2.1.0 ok\n< 250 2.1.5 ok\n< 354 go\n"
	)
	runScenarios(t, pipelining, []scenario{
		{
			name:   "one message in two flights",
			script: one + yes + "content\n> QUIT\nsilence\n< 250 ok\n< 221 bye\nclose\n",
			mails:  []string{"a"}, want: []string{"answered 250"},
		},
		{
			name:   "the next envelope behind the content",
			script: one + yes + "content\n" + one + "< 250 first\n" + yes + "content\n" + one + "< 250 second\n" + yes + "content\n< 250 third\n" + goodbye,
			mails:  []string{"a", "a", "a"}, want: []string{"answered 250", "answered 250", "answered 250"},
		},
		{
			name:   "all recipients refused and 354: a lone dot, whatever the answer",
			script: one + "< 250 ok\n< 550 who\n< 354 go\n> .\n" + one + "< 250 thanks for nothing\n" + yes + "content\n> QUIT\n< 250 ok\n< 221 bye\n",
			mails:  []string{"a", "a"}, want: []string{"answered 550", "answered 250"},
		},
		{
			name:   "all recipients refused and DATA too: RSET before the next",
			script: one + "< 250 ok\n< 550 who\n< 554 no recipients\n> RSET\n" + one + "< 250 ok\n" + yes + "content\n> QUIT\n< 250 ok\n< 221 bye\n",
			mails:  []string{"a", "a"}, want: []string{"answered 550", "answered 250"},
		},
		{
			name:   "MAIL refused: the 503s behind it are consumed",
			script: one + "< 450 4.7.1 grey\n< 503 5.5.1 MAIL first\n< 503 5.5.1 MAIL first\n" + one + yes + "content\n> QUIT\n< 250 ok\n< 221 bye\n",
			mails:  []string{"a", "a"}, want: []string{"answered 450", "answered 250"},
		},
		{
			name:   "MAIL refused and 354 all the same",
			script: one + "< 550 no\n< 503 no\n< 354 go\n> .\n> QUIT\n< 503 no\n< 221 bye\n",
			mails:  []string{"a"}, want: []string{"answered 550"},
		},
		{
			name:   "some refused, DATA refused: each its own answer",
			script: mail + rcpt + "> RCPT TO:<b@example.com>\n> DATA\n< 250 ok\n< 250 ok\n< 551 gone\n< 451 no disk\n" + goodbye,
			mails:  []string{"a b"}, want: []string{"answered 451, answered 551"},
		},
		{
			name:   "too many recipients",
			script: mail + rcpt + "> RCPT*\n> RCPT*\n> DATA\n< 250 ok\n< 250 ok\n< 452 too many\n< 552 5.5.3 too many\n< 354 go\ncontent\n> QUIT\n< 250 ok\n< 221 bye\n",
			mails:  []string{"a b c"}, want: []string{"answered 250, excess 452, excess 552"},
		},
		{
			name:   "content refused, the next is not affected",
			script: one + yes + "content\n" + one + "< 554 spam\n" + yes + "content\n> QUIT\n< 250 ok\n< 221 bye\n",
			mails:  []string{"a", "a"}, want: []string{"answered 554", "answered 250"},
		},
		{
			name:   "421 to the content: what came behind it is untried",
			script: one + yes + "content\n" + one + "< 421 closing\nclose\n",
			mails:  []string{"a", "a", "a"}, want: []string{"answered 421", "untried 421", "untried 421"},
		},
		{
			name:   "421 to DATA",
			script: one + "< 250 ok\n< 250 ok\n< 421 closing\nclose\n",
			mails:  []string{"a", "a"}, want: []string{"answered 421", "untried 421"},
		},
		{
			name:   "421 to the second envelope on a used connection",
			script: one + yes + "content\n" + one + "< 250 ok\n< 421 enough\nclose\n",
			mails:  []string{"a", "a"}, want: []string{"answered 250", "untried 421"},
		},
		{
			name:   "closed before the content's reply: one in doubt, one untried",
			script: one + yes + "content\n" + one + "close\n",
			mails:  []string{"a", "a", "a"}, want: []string{"ambiguous 421", "untried 421", "untried 421"},
		},
		{
			name:   "closed in the middle of the envelope's replies",
			script: one + yes + "content\n" + one + "< 250 ok\n< 250 ok\nclose\n",
			mails:  []string{"a", "a"}, want: []string{"answered 250", "failed 421"},
		},
		{
			name:   "out of step: DATA answered with 250",
			script: one + "< 250 ok\n< 250 ok\n< 250 ok\neof\n",
			mails:  []string{"a"}, want: []string{"failed 451"}, err: ErrOutOfStep,
		},
		{
			name:   "the reply to the content is swallowed, and QUIT answered",
			script: one + yes + "content\n> QUIT\nsilence\n< 221 bye\nclose\n",
			mails:  []string{"a"}, want: []string{"ambiguous 451"}, err: ErrOutOfStep,
		},
		{
			name:   "the reply to RCPT is swallowed",
			script: one + "< 250 ok\n< 354 go\neof\n",
			mails:  []string{"a"}, want: []string{"failed 451"}, err: ErrOutOfStep,
		},
		{
			name:   "503 to DATA with a recipient accepted: the host has lost count",
			script: one + "< 250 ok\n< 250 ok\n< 503 5.5.1 what\n" + goodbye,
			mails:  []string{"a", "a"}, want: []string{"failed 451", "untried 451"}, err: ErrOutOfStep,
		},
		{
			name:   "503 to RCPT with MAIL accepted",
			script: one + "< 250 ok\n< 503 5.5.1 what\n< 503 5.5.1 what\n" + goodbye,
			mails:  []string{"a", "a"}, want: []string{"failed 451", "untried 451"}, err: ErrOutOfStep,
		},
		{
			name:   "what was sent ahead is lost",
			script: one + yes + "content\n" + one + "< 250 ok\npause 299s\nsilence\npause 2s\ngone\n",
			mails:  []string{"a", "a"}, want: []string{"answered 250", "untried 421"}, err: ErrOutOfStep,
		},
		{
			name:   "capped to lock-step",
			script: mail + "silence\n< 250 ok\n" + rcpt + "silence\n< 250 ok\n> DATA\n< 354 go\ncontent\n< 250 ok\n" + goodbye,
			mails:  []string{"a"}, want: []string{"answered 250"}, mode: LockStep,
		},
	})
}

func TestChunked(t *testing.T) {
	const (
		one   = "> MAIL FROM:<s@example.org> SIZE=21\n> RCPT TO:<a@example.com>\n> BDAT 21 LAST\noctets 21\n"
		again = "> RSET\n" + one
		yes   = "< 250 2.1.0 ok\n< 250 2.1.5 ok\n< 250 2.6.0 21 octets\n"
		yes2  = "< 250 reset\n" + yes
	)
	wide := Window{Messages: 8}
	runScenarios(t, chunking, []scenario{
		{
			name:   "a window of whole messages in one flight",
			script: one + again + again + "> QUIT\nsilence\n" + yes + yes2 + yes2 + "< 221 bye\nclose\n",
			mails:  []string{"a", "a", "a"}, want: []string{"answered 250", "answered 250", "answered 250"}, window: wide,
		},
		{
			name:   "the window starts at one and grows",
			script: one + "silence\n" + yes + one + again + "silence\n" + yes + again + yes2 + again + yes2 + "> QUIT\n" + yes2 + "< 221 bye\n",
			mails:  []string{"a", "a", "a", "a", "a"}, want: []string{"answered 250", "answered 250", "answered 250", "answered 250", "answered 250"},
		},
		{
			name:   "all recipients refused: BDAT too, the next is not affected",
			script: one + again + "> QUIT\n< 250 ok\n< 550 who\n< 503 no recipients\n" + yes2 + "< 221 bye\n",
			mails:  []string{"a", "a"}, want: []string{"answered 550", "answered 250"}, window: wide,
		},
		{
			name:   "all recipients refused and BDAT taken: never delivered",
			script: one + "> QUIT\n< 250 ok\n< 550 who\n< 250 octets eaten\n< 221 bye\n",
			mails:  []string{"a"}, want: []string{"answered 550"}, window: wide,
		},
		{
			name:   "MAIL refused: the 503s behind it are consumed",
			script: one + again + "> QUIT\n< 451 grey\n< 503 no\n< 503 no\n" + yes2 + "< 221 bye\n",
			mails:  []string{"a", "a"}, want: []string{"answered 451", "answered 250"}, window: wide,
		},
		{
			name:   "BDAT refused",
			script: one + again + "> QUIT\n< 250 ok\n< 250 ok\n< 552 5.2.2 full\n" + yes2 + "< 221 bye\n",
			mails:  []string{"a", "a"}, want: []string{"answered 552", "answered 250"}, window: wide,
		},
		{
			name:   "some refused",
			script: "> MAIL*\n> RCPT*\n> RCPT*\n> BDAT 21 LAST\noctets 21\n> QUIT\n< 250 ok\n< 450 later\n< 250 ok\n< 250 ok\n< 221 bye\n",
			mails:  []string{"a b"}, want: []string{"answered 450, answered 250"}, window: wide,
		},
		{
			name:   "connection lost after k of n",
			script: one + again + again + again + yes + yes2 + "close\n",
			mails:  []string{"a", "a", "a", "a"}, want: []string{"answered 250", "answered 250", "ambiguous 421", "ambiguous 421"}, window: wide,
		},
		{
			name:   "421 in the middle: nothing behind it was acted on",
			script: one + again + again + yes + "< 250 reset\n< 250 ok\n< 421 closing\nclose\n",
			mails:  []string{"a", "a", "a"}, want: []string{"answered 250", "answered 421", "untried 421"}, window: wide,
		},
		{
			name:   "421 to RSET on a used connection",
			script: one + again + again + yes + "< 421 enough\nclose\n",
			mails:  []string{"a", "a", "a"}, want: []string{"answered 250", "untried 421", "untried 421"}, window: wide,
		},
		{
			name:   "out of step: what is unanswered is in doubt",
			script: one + again + again + yes + "< 250 reset\n< 354 go\neof\n",
			mails:  []string{"a", "a", "a"}, want: []string{"answered 250", "ambiguous 451", "ambiguous 451"}, window: wide, err: ErrOutOfStep,
		},
		{
			name:   "out of step: refused MAIL, accepted BDAT",
			script: one + "< 550 no\n< 250 ok\n< 250 ok\neof\n",
			mails:  []string{"a"}, want: []string{"answered 550"}, window: wide, err: ErrOutOfStep,
		},
		{
			name:   "the reply to BDAT is swallowed, and QUIT answered",
			script: one + "> QUIT\n< 250 ok\n< 250 ok\n< 221 bye\nclose\n",
			mails:  []string{"a"}, want: []string{"ambiguous 451"}, window: wide, err: ErrOutOfStep,
		},
		{
			name: "the reply to a BDAT amid a window is swallowed",
			script: one + again + again + again + "> QUIT\n" + yes + "< 250 2.0.0 reset\n< 250 2.1.0 ok\n< 250 2.1.5 ok\n" +
				"< 250 2.0.0 reset\n" + yes + "< 250 2.0.0 reset\n" + yes + "< 221 bye\n",
			mails: []string{"a", "a", "a", "a"}, want: []string{"answered 250", "answered 250", "ambiguous 451", "ambiguous 451"}, err: ErrOutOfStep, window: wide,
		},
		{
			name: "a host that answers RSET and contents with X.1.Z",
			script: one + again + again + "> QUIT\n" + "< 250 2.1.0 ok\n< 250 2.1.5 ok\n< 250 2.1.5 mine\n" +
				"< 250 2.1.5 flushed\n< 250 2.1.0 ok\n< 250 2.1.5 ok\n< 250 2.1.5 mine\n" +
				"< 250 2.1.5 flushed\n< 250 2.1.0 ok\n< 250 2.1.5 ok\n< 250 2.1.5 mine\n" + "< 221 bye\n",
			mails: []string{"a", "a", "a"}, want: []string{"answered 250", "answered 250", "answered 250"}, window: wide,
		},
		{
			name:   "any reply of a window is swallowed, and QUIT answered: the last is in doubt",
			script: one + again + "> QUIT\n" + yes + "< 250 reset\n< 250 2.1.0 ok\n< 250 2.6.0 21 octets\n< 221 bye\nclose\n",
			mails:  []string{"a", "a"}, want: []string{"answered 250", "ambiguous 451"}, window: wide, err: ErrOutOfStep,
		},
		{
			name:   "RSET refused by a host that closes: what is behind it is untried",
			script: one + again + again + yes + "< 554 too many nonmail commands\nclose\n",
			mails:  []string{"a", "a", "a"}, want: []string{"answered 250", "untried 421", "untried 421"}, window: wide,
		},
		{
			name:   "RSET refused by a host that goes on: what is behind it is in doubt",
			script: one + again + yes + "< 502 what\n< 503 nested MAIL\neof\n",
			mails:  []string{"a", "a"}, want: []string{"answered 250", "ambiguous 451"}, window: wide, err: ErrOutOfStep,
		},
		{
			name:   "RSET refused by a host that falls silent",
			script: one + again + yes + "< 502 what\npause 4s\nsilence\npause 2s\ngone\n",
			mails:  []string{"a", "a"}, want: []string{"answered 250", "ambiguous 421"}, window: wide,
		},
		{
			name:   "no reply in time",
			script: one + again + yes + "< 250 ok\n< 250 ok\n< 250 ok\npause 599s\nsilence\npause 2s\ngone\n",
			mails:  []string{"a", "a"}, want: []string{"answered 250", "ambiguous 421"}, window: wide,
		},
		{
			name:   "BDAT not known after all: what is under way is heard to its end",
			script: one + again + "> QUIT\n< 250 ok\n< 250 ok\n< 500 what\n< 250 ok\n< 250 ok\n< 250 ok\n< 250 ok\n< 221 bye\n",
			mails:  []string{"a", "a"}, want: []string{"failed 451", "answered 250"}, window: wide, err: ErrOutOfStep,
		},
		{
			name:   "503 to BDAT",
			script: one + "< 250 ok\n< 250 ok\n< 503 what\n" + goodbye,
			mails:  []string{"a", "a"}, want: []string{"failed 451", "untried 451"}, window: Window{Messages: 1}, err: ErrOutOfStep,
		},
		{
			name:   "nested MAIL",
			script: one + again + yes + "< 250 ok\n< 503 nested MAIL\n< 503 no\n< 503 no\n" + goodbye,
			mails:  []string{"a", "a"}, want: []string{"answered 250", "failed 451"}, window: wide, err: ErrOutOfStep,
		},
		{
			name:   "capped to pipelining",
			script: "> MAIL*\n> RCPT*\n> DATA\nsilence\n< 250 ok\n< 250 ok\n< 354 go\ncontent\n> QUIT\n< 250 ok\n< 221 bye\n",
			mails:  []string{"a"}, want: []string{"answered 250"}, window: wide, mode: Pipelined,
		},
	})
}
