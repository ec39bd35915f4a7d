package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/bounce/report"
	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
)

// pair are two nodes: the first has sent the message, and the second is brought the reports.
type pair struct {
	sender, other *desk
	handed        int // reports that the second has handed over
	err           error
}

func newPair(t *testing.T) *pair {
	p := &pair{sender: newDesk(t), other: newDesk(t)}
	p.other.cfg.Node = 7
	p.other.cfg.Elsewhere = func(ctx context.Context, h *Handed) (Outcome, error) {
		text, err := json.Marshal(h)
		if p.handed++; err != nil || p.err != nil {
			return "", errors.Join(err, p.err)
		}
		var there Handed
		if err := json.Unmarshal(text, &there); err != nil {
			return "", err
		}
		return p.sender.TakeHanded(ctx, &there)
	}
	return p
}

// brings has a node take a mail, which ends in a way, and is handed over or not.
func (p *pair) brings(d *desk, to envelope.Address, content string, want Outcome, handed bool) {
	d.t.Helper()
	before, n := d.Counts(), p.handed
	m := &Mail{Session: "s1", Peer: netip.MustParseAddrPort("198.51.100.1:4000"), Helo: "mx.example.net", Protocol: "ESMTP",
		Recipients: []envelope.Address{to}, Content: []byte(content), Size: int64(len(content)), Time: noon}
	err := d.Take(d.t.Context(), d.addresses, d.forward, m)
	var got []string
	for c, n := range d.Counts() {
		if n > before[c] {
			got = append(got, string(c.Outcome))
		}
	}
	if fmt.Sprint(got) != fmt.Sprintf("[%s]", want) || (err != nil) != (want == Failed) || (p.handed > n) != handed {
		d.t.Errorf("to %s: %v, %v, handed over %d times; want %s, handed over %v", to, got, err, p.handed-n, want, handed)
	}
}

const bounceText = "From: MAILER-DAEMON@mx.example.net\r\nSubject: Undelivered Mail Returned to Sender\r\n\r\n<ann@example.net>: 550 5.1.1 user unknown\r\n"

// complaintText returns the header of a message with a token.
func complaintText(token string) string {
	return strings.ReplaceAll(`From: fbl@example.net
Subject: complaint
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary="b"

--b

spam
--b
Content-Type: message/feedback-report

Feedback-Type: abuse
User-Agent: FBL/1.0
Version: 1
--b
Content-Type: message/rfc822

From: news@acme.example
X-MTA-Token: `+token+`

Hello
--b--
`, "\n", "\r\n")
}

// TestReportsGoToTheNodeThatSent: what another node is brought is recorded there, once, as if it had been brought there.
func TestReportsGoToTheNodeThatSent(t *testing.T) {
	p := newPair(t)
	a, b := p.sender, p.other
	p.brings(b, a.bounceTo(0), bounceText, Recorded, true)
	if len(a.books.written) != 1 {
		t.Fatal("nothing is recorded")
	}
	if r := a.books.written[0]; !r.Follows || r.About != ByToken || r.Recipient != "ann@example.net" || r.Message.Tenant != "acme" || r.Mail.Peer.String() != "198.51.100.1:4000" || !r.Mail.Time.Equal(noon) || r.Mail.Helo != "mx.example.net" {
		t.Errorf("%+v of %+v", r, r.Mail)
	}
	p.brings(b, a.bounceTo(0), bounceText, Repeated, false)
	p.brings(a, a.bounceTo(0), bounceText, Repeated, false)
	large := bounceText + strings.Repeat("x", 900<<10)
	p.brings(b, a.bounceTo(0), large, Repeated, true)

	p.brings(b, "fbl@b.example.com", complaintText(a.token(returnpath.Bounce, 1)), Recorded, true)
	if r := a.books.written[1]; r.Kind != Complaint || !r.Follows || r.About != ByReturned || r.Recipient != "bob@example.net" {
		t.Errorf("%+v", r)
	}
	p.brings(a, "fbl@b.example.com", complaintText(a.token(returnpath.Bounce, 1)), Repeated, false)

	wish := envelope.Address("u-" + a.token(returnpath.Unsubscribe, 2) + "@b.example.com")
	p.brings(b, wish, "From: other@example.net\r\nSubject: no more\r\n\r\n", Unsubscribed, true)
	if len(a.books.unsubscribed) != 1 || a.books.unsubscribed[0].Recipient != "Carl@Example.ORG" {
		t.Errorf("%+v", a.books.unsubscribed)
	}
	p.brings(b, wish, "From: other@example.net\r\nSubject: no more, I said\r\n\r\n", Repeated, false)
	own := strings.Replace(bounceText, "\r\n\r\n", "\r\nMIME-Version: 1.0\r\nContent-Type: multipart/report; boundary=b\r\n\r\n--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; relay.example.com\r\n\r\nFinal-Recipient: rfc822; bob@example.net\r\nAction: failed\r\nStatus: 5.1.1\r\n--b--\r\n", 1)
	b.cfg.Hostname = "other.example.com"
	p.brings(b, a.bounceTo(1), own, Own, true)
	if len(b.books.written)+len(b.books.unsubscribed)+len(a.books.written) != 2 || len(a.Counts()) > 2 {
		t.Errorf("recorded %d and %d, counted %v", len(a.books.written), len(b.books.written), a.Counts())
	}
}

// TestWhatIsNotHandedOver: forged tokens, and mail from which nothing follows.
func TestWhatIsNotHandedOver(t *testing.T) {
	p := newPair(t)
	a, b := p.sender, p.other
	forged := "1" + strings.Repeat("0", returnpath.Length-1)
	p.brings(b, "fbl@b.example.com", complaintText(forged), Recorded, false)
	p.brings(b, "b-"+envelope.Address(forged)+"@b.example.com", bounceText, Recorded, false)
	p.brings(b, a.bounceTo(0), "From: ann@example.net\r\nAuto-Submitted: auto-replied\r\nSubject: Out of office\r\n\r\nlater\r\n", Ignored, false)
	p.brings(b, a.bounceTo(0), "From: ann@example.net\r\nSubject: hello\r\n\r\nhow are you\r\n", Kept, false)
	b.cfg.Elsewhere = nil
	p.brings(b, a.bounceTo(0), bounceText, Recorded, false)
	for _, r := range b.books.written {
		if r.Follows || r.Message != nil {
			t.Errorf("%+v", r)
		}
	}
	if len(a.books.written) > 0 {
		t.Errorf("%+v", a.books.written)
	}
}

// TestReportsThatCannotBeHandedOver fail, so that they come again. What no node has records of is written down here, and
// what people must look at is kept here.
func TestReportsThatCannotBeHandedOver(t *testing.T) {
	p := newPair(t)
	a, b := p.sender, p.other
	p.err = errors.New("no answer")
	p.brings(b, a.bounceTo(0), bounceText, Failed, true)
	if p.err = nil; len(b.books.written) > 0 {
		t.Errorf("%+v", b.books.written)
	}
	a.books.err = errors.New("disk on fire")
	p.brings(b, a.bounceTo(0), bounceText, Failed, true)
	a.books.err = nil
	p.brings(b, a.bounceTo(0), bounceText, Recorded, true)

	p.brings(b, a.bounceTo(returnpath.NoRecipient), "From: ann@example.com\r\nSubject: unsubscribe\r\n\r\n", Kept, true)
	if a, b := a.cfg.Folder.Stats().Messages, b.cfg.Folder.Stats().Messages; a != 0 || b != 1 {
		t.Errorf("%d and %d are kept", a, b)
	}
	gone := a.keys.Make(returnpath.Bounce, returnpath.Token{Message: sent + 1, Recipient: 0, Day: noon})
	p.brings(b, "b-"+envelope.Address(gone)+"@b.example.com", bounceText, Recorded, true)
	if r := b.books.written; len(r) != 1 || r[0].Follows || r[0].ID != sent+1 {
		t.Errorf("%+v", r)
	}
	b.cfg.Elsewhere = func(context.Context, *Handed) (Outcome, error) { p.handed++; return "eaten", nil }
	p.brings(b, a.bounceTo(1), bounceText, Failed, true)
	// The other node's token is not this one's, whatever has the same id here.
	h := Handed{Token: returnpath.Token{Node: 3, Message: sent}, Mail: Mail{Content: []byte(bounceText)}, About: ByToken, Purpose: report.AnyReport}
	if o, err := a.TakeHanded(t.Context(), &h); o != "" || err != nil || len(a.books.written) != 1 {
		t.Errorf("%s %v", o, err)
	}
	// Nothing is handed on.
	a.cfg.Elsewhere = b.cfg.Elsewhere
	h.Token = returnpath.Token{Message: sent + 1}
	n := p.handed
	if o, err := a.TakeHanded(t.Context(), &h); o != "" || err != nil || p.handed != n {
		t.Errorf("%s %v", o, err)
	}
}

// TestStrangersDoNotFillTheLink: whoever has got mail has a genuine token, and may repeat it in one mail and in many.
func TestStrangersDoNotFillTheLink(t *testing.T) {
	p := newPair(t)
	a, b := p.sender, p.other
	octets, take := 0, b.cfg.Elsewhere
	b.cfg.Elsewhere = func(ctx context.Context, h *Handed) (Outcome, error) {
		octets += len(h.Mail.Content)
		return take(ctx, h)
	}
	text := "From: other@example.net\r\nSubject: no more\r\n\r\n" + strings.Repeat("x", 300<<10)
	m := &Mail{Peer: netip.MustParseAddrPort("198.51.100.1:4000"), Content: []byte(text), Size: int64(len(text)), Time: noon}
	bring := func(want Counted, n int64, to ...envelope.Address) {
		t.Helper()
		m.Recipients = to
		before := b.Counts()[want]
		if err := b.Take(t.Context(), b.addresses, b.forward, m); err != nil || b.Counts()[want] != before+n {
			t.Errorf("counted %v, %v", b.Counts(), err)
		}
	}
	var wishes []envelope.Address
	for i := range 100 {
		token := a.token(returnpath.Unsubscribe, i%2)
		if i > 50 {
			token = strings.ToLower(token)
		}
		wishes = append(wishes, envelope.Address("u-"+token+"@b.example.com"))
	}
	bring(Counted{report.Unsubscribe, Unsubscribed}, 2, wishes...)
	bring(Counted{report.Unsubscribe, Repeated}, 2, wishes...)
	if p.handed != 2 || octets != 0 || len(a.books.unsubscribed) != 2 {
		t.Errorf("%d wishes are handed over, with %d octets; %d have ended", p.handed, octets, len(a.books.unsubscribed))
	}
	// What people must look at is kept here each time, after it was handed over once.
	p.handed = 0
	text = "From: ann@example.com\r\nSubject: unsubscribe\r\n\r\n"
	m.Content, m.Size = []byte(text), int64(len(text))
	for range 3 {
		bring(Counted{report.Unsubscribe, Kept}, 1, a.bounceTo(returnpath.NoRecipient))
	}
	// A refusal is not remembered: the report comes again.
	p.err = errors.New("no answer")
	p.brings(b, a.bounceTo(0), bounceText, Failed, true)
	p.err = nil
	p.brings(b, a.bounceTo(0), bounceText, Recorded, true)
	p.brings(b, a.bounceTo(0), bounceText, Repeated, false)
	if p.handed != 3 {
		t.Errorf("%d are handed over", p.handed)
	}
}

// slow are books whose writing waits.
type slow struct {
	*books
	begun, end chan error
}

func (s slow) Write(_ context.Context, all []*Record) error { return s.settle(&s.written, all...) }

func (s slow) Unsubscribe(_ context.Context, r *Record) error { return s.settle(&s.unsubscribed, r) }

func (s slow) settle(to *[]*Record, all ...*Record) error {
	s.begun <- nil
	err := <-s.end
	if err == nil {
		*to = append(*to, all...)
	}
	return err
}

// TestWhatIsBeingWrittenIsNotWrittenAgain: a node that hands a report over gives up before the other one, and the host
// goes on to a third node.
func TestWhatIsBeingWrittenIsNotWrittenAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for name, to := range map[string]func(*desk) envelope.Address{
			"a bounce": func(d *desk) envelope.Address { return d.bounceTo(0) },
			"a wish": func(d *desk) envelope.Address {
				return envelope.Address("u-" + d.token(returnpath.Unsubscribe, 0) + "@b.example.com")
			},
		} {
			p := newPair(t)
			third := newDesk(t)
			third.cfg.Node, third.cfg.Elsewhere = 8, p.sender.TakeHanded
			s := slow{&p.sender.books, make(chan error), make(chan error)}
			p.sender.cfg.Books = s
			bring := func(ctx context.Context, d *desk) chan error {
				took := make(chan error, 1)
				go func() {
					took <- d.Take(ctx, d.addresses, d.forward, &Mail{Peer: netip.MustParseAddrPort("198.51.100.1:4000"),
						Recipients: []envelope.Address{to(p.sender)}, Content: []byte(bounceText), Size: int64(len(bounceText)), Time: noon})
				}()
				synctest.Wait()
				return took
			}
			none := func(took chan error) {
				t.Helper()
				synctest.Wait()
				select {
				case <-s.begun:
					t.Errorf("%s is written twice", name)
					s.end <- nil
				case err := <-took:
					t.Errorf("%s is answered with %v before it is written", name, err)
				default:
				}
			}
			first := bring(t.Context(), p.sender)
			<-s.begun
			second := bring(t.Context(), third)
			none(second)
			impatient, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := <-bring(impatient, third); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s that has waited for a second: %v", name, err)
			}
			cancel()
			// After a failure the next one is written.
			s.end <- errors.New("disk on fire")
			if err := <-first; err == nil {
				t.Errorf("%s: no failure", name)
			}
			<-s.begun
			again := bring(t.Context(), p.sender)
			none(again)
			s.end <- nil
			if err := errors.Join(<-second, <-again); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := len(s.written) + len(s.unsubscribed); n != 1 {
				t.Errorf("%s has %d records", name, n)
			}
			if len(p.sender.pending.by) > 0 {
				t.Errorf("%s is still being written", name)
			}
		}
	})
}

// TestReportsWithSomeOfTheSameFacts wait for each other, whatever their order, and none for ever.
func TestReportsWithSomeOfTheSameFacts(t *testing.T) {
	var p pending
	var all sync.WaitGroup
	keys := []repeat{{recipient: "a@x"}, {recipient: "b@x"}, {recipient: "c@x"}}
	var has [3]atomic.Int32
	for i := range 60 {
		all.Go(func() {
			first, second := i%3, (i+1+i/3%2)%3
			unknown := repeat{unknown: true}
			end, err := p.begin(t.Context(), []repeat{unknown, keys[first], keys[second], keys[first]})
			if err != nil || has[first].Add(1) != 1 || has[second].Add(1) != 1 {
				t.Errorf("two have %d or %d: %v", first, second, err)
			}
			has[first].Add(-1)
			has[second].Add(-1)
			end()
		})
	}
	all.Wait()
}
