package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/bounce/report"
	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

var (
	noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	sent = envelope.ID(0x0193_5432_1fed_cba9)
)

// books have one message, to ann, bob and Carl, of tenant acme.
type books struct {
	written      []*Record
	unsubscribed []*Record
	err          error
}

func (b *books) Message(_ context.Context, id envelope.ID) (*Message, error) {
	if id != sent {
		return nil, b.err
	}
	return &Message{ID: sent, Sender: "news@acme.example", Tenant: "acme", Recipients: []Recipient{
		{Address: "ann@example.net", Provider: "google"}, {Address: "bob@example.net"}, {Address: "Carl@Example.ORG"},
	}}, b.err
}

func (b *books) Write(_ context.Context, all []*Record) error {
	if b.err == nil {
		b.written = append(b.written, all...)
	}
	return b.err
}

func (b *books) Unsubscribe(_ context.Context, r *Record) error {
	if b.err == nil {
		b.unsubscribed = append(b.unsubscribed, r)
	}
	return b.err
}

// desk is an Inbox with all that it needs.
type desk struct {
	*Inbox
	t         *testing.T
	books     books
	keys      *returnpath.Keys
	addresses *Addresses
	forwarded []string
	forward   envelope.Address
}

func newDesk(t *testing.T) *desk {
	keys, err := returnpath.New(7*24*time.Hour, bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	folder, err := OpenFolder(t.TempDir(), FolderLimits{Messages: 3, Octets: 2000})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, keys: keys, addresses: NewAddresses([]string{"b.example.com", "bücher.example"}, []envelope.Address{"Fbl@b.example.com"}, true)}
	d.Inbox = New(Config{
		Hostname: "relay.example.com", Keys: func() *returnpath.Keys { return keys }, Books: &d.books, Folder: folder, MaxHops: 10,
		Forward: func(_ context.Context, to envelope.Address, content []byte) error {
			d.forwarded = append(d.forwarded, string(to)+"\n"+string(content))
			return nil
		},
		Classify: func(r *reply.Reply, provider string) bounce.Class {
			if provider == "google" && r.Code == 552 {
				return bounce.SpamBlock
			}
			return bounce.Of(*r)
		},
		Log: slog.New(slog.DiscardHandler),
	})
	return d
}

func (d *desk) token(purpose returnpath.Purpose, recipient int) string {
	return d.keys.Make(purpose, returnpath.Token{Message: sent, Recipient: recipient, Day: noon.Truncate(24 * time.Hour)})
}

// bounceTo is the return path of a recipient.
func (d *desk) bounceTo(recipient int) envelope.Address {
	return envelope.Address("b-" + d.token(returnpath.Bounce, recipient) + "@b.example.com")
}

// take has a mail with a given result taken.
func (d *desk) take(to envelope.Address, r report.Result, content string) error {
	m := &Mail{Session: "s1", Peer: netip.MustParseAddrPort("198.51.100.1:4000"), Helo: "mx.example.net", Protocol: "ESMTP",
		Recipients: []envelope.Address{to}, Content: []byte(content), Size: int64(len(content)), Time: noon}
	a := &arrival{Inbox: d.Inbox, Mail: m, forward: d.forward}
	a.locate(d.addresses)
	a.result = &r
	return a.settle(context.Background())
}

func (d *desk) must(to envelope.Address, r report.Result, content string, want Outcome) {
	d.t.Helper()
	before := d.Counts()[Counted{r.Kind, want}]
	if err := d.take(to, r, content); err != nil && want != Failed {
		d.t.Fatalf("to %s: %v", to, err)
	}
	if n := d.Counts()[Counted{r.Kind, want}]; n != before+1 {
		d.t.Fatalf("to %s: outcomes %v, want one more %s", to, d.Counts(), want)
	}
}

func failed(recipient string) report.Result {
	return report.Result{Kind: report.Bounce, Host: "mx.example.net", Reports: []report.Report{{
		Recipient: recipient, Action: report.ActionFailed, Status: reply.Enhanced{5, 1, 1}, Class: bounce.InvalidRecipient, Hard: true, Diagnostic: "user unknown",
	}}}
}

func TestAddresses(t *testing.T) {
	d := newDesk(t)
	b, u := d.token(returnpath.Bounce, 0), d.token(returnpath.Unsubscribe, 0)
	next := noon.Add(30 * 24 * time.Hour)
	for _, c := range []struct {
		address string
		at      time.Time
		want    Place
		err     error
	}{
		{"b-" + b + "@b.example.com", noon, Place{}, nil},
		{"B-" + strings.ToUpper(b) + "@B.Example.COM", noon, Place{}, nil},
		{"b-" + b + "@xn--bcher-kva.example", noon, Place{}, nil},
		{"u-" + u + "@b.example.com", noon, Place{Purpose: report.Unsubscription}, nil},
		{"u-" + u + "@b.example.com", next, Place{Purpose: report.Unsubscription}, nil},
		{"FBL@b.example.com", noon, Place{Purpose: report.Complaints}, nil},
		{"Abuse@bücher.example", noon, Place{Purpose: report.Complaints}, nil},
		{"POSTMASTER@b.example.com", noon, Place{}, nil},
		{"fbl@bücher.example", noon, Place{}, ErrUnknown}, // configured for the other domain
		{"b-" + b + "@b.example.com", next, Place{}, ErrExpired},
		{"b-" + u + "@b.example.com", noon, Place{}, ErrUnknown}, // made for another purpose
		{"u-" + b + "@b.example.com", noon, Place{}, ErrUnknown},
		{"b-" + b[1:] + "@b.example.com", noon, Place{}, ErrUnknown},
		{"b-" + b + "0@b.example.com", noon, Place{}, ErrUnknown},
		{b + "@b.example.com", noon, Place{}, ErrUnknown},
		{"b-@b.example.com", noon, Place{}, ErrUnknown},
		{"info@b.example.com", noon, Place{}, ErrUnknown},
		{"b-" + b + "@example.com", noon, Place{}, ErrForeign},
		{"b-" + b + "@sub.b.example.com", noon, Place{}, ErrForeign},
		{"postmaster@[192.0.2.1]", noon, Place{}, ErrForeign},
	} {
		got, err := d.addresses.Find(envelope.Address(c.address), d.keys, c.at)
		if !errors.Is(err, c.err) || got.Purpose != c.want.Purpose {
			t.Errorf("%s: %v, %v", c.address, got, err)
		}
		if hasToken := c.err == nil && strings.Contains(c.address, "-1"); err == nil && hasToken != (got.Token != nil) {
			t.Errorf("%s: token %v", c.address, got.Token)
		}
	}
	if NewAddresses([]string{"b.example.com"}, nil, false).postmaster != "postmaster@b.example.com" {
		t.Error("the postmaster without a domain is another")
	}
	if _, err := NewAddresses([]string{"b.example.com"}, nil, false).Find(envelope.Address("u-"+u+"@b.example.com"), d.keys, noon); !errors.Is(err, ErrUnknown) {
		t.Errorf("unsubscribe is off: %v", err)
	}
}

// Each line is a report, and whom it is found to be about.
func TestWhomAReportIsAbout(t *testing.T) {
	returned := func(d *desk, r report.Result, recipient int) report.Result {
		r.Tokens = []string{"1forged", d.token(returnpath.Bounce, recipient)}
		return r
	}
	several := returnpath.NoRecipient
	for _, c := range []struct {
		name      string
		to        func(d *desk) envelope.Address
		result    func(d *desk) report.Result
		recipient envelope.Address
		about     About
		sure      bool
	}{
		{"the token, and the recipient is named", func(d *desk) envelope.Address { return d.bounceTo(several) }, func(*desk) report.Result { return failed("BOB@example.NET") }, "bob@example.net", ByToken, true},
		{"the token names it", func(d *desk) envelope.Address { return d.bounceTo(2) }, func(*desk) report.Result { return failed("") }, "Carl@Example.ORG", ByToken, true},
		{"another recipient of the message, to whom the token did not go", func(d *desk) envelope.Address { return d.bounceTo(0) }, func(*desk) report.Result { return failed("bob@example.net") }, "bob@example.net", ByFields, false},
		{"another recipient of the message, by what is returned", func(*desk) envelope.Address { return "postmaster@b.example.com" }, func(d *desk) report.Result { return returned(d, failed("bob@example.net"), 2) }, "bob@example.net", ByFields, false},
		{"several, and none is named", func(d *desk) envelope.Address { return d.bounceTo(several) }, func(*desk) report.Result { return failed("") }, "", ByToken, false},
		{"one that the message never had", func(d *desk) envelope.Address { return d.bounceTo(0) }, func(*desk) report.Result { return failed("victim@example.net") }, "victim@example.net", ByFields, false},
		{"a position that the message never had", func(d *desk) envelope.Address { return d.bounceTo(7) }, func(*desk) report.Result { return failed("") }, "", ByToken, false},
		{"the last host knows another address", func(d *desk) envelope.Address { return d.bounceTo(0) }, func(*desk) report.Result {
			r := failed("ann@example.net")
			r.Reports[0].Final = "ann@forwarded.example"
			return r
		}, "ann@example.net", ByToken, true},
		{"a token that was returned", func(*desk) envelope.Address { return "postmaster@b.example.com" }, func(d *desk) report.Result { return returned(d, failed("ann@example.net"), several) }, "ann@example.net", ByReturned, true},
		{"forged ones only", func(*desk) envelope.Address { return "postmaster@b.example.com" }, func(d *desk) report.Result {
			r := failed("ann@example.net")
			r.Tokens, r.Original.MessageID = []string{"1forged"}, "<x@acme.example>"
			return r
		}, "ann@example.net", ByMessageID, false},
		{"fields", func(*desk) envelope.Address { return "postmaster@b.example.com" }, func(*desk) report.Result { return failed("ann@example.net") }, "ann@example.net", ByFields, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			d.must(c.to(d), c.result(d), "x", Recorded)
			got := d.books.written[0]
			if got.Recipient != c.recipient || got.About != c.about || got.Follows != c.sure || c.sure && got.Known == nil {
				t.Errorf("%+v", got)
			}
			if proven := c.about == ByToken || c.about == ByReturned || strings.Contains(c.name, "message"); (got.ID == sent) != proven {
				t.Errorf("message %v", got.ID)
			}
			if got.Reply.Code != 550 || got.Reply.Enhanced != (reply.Enhanced{5, 1, 1}) || got.Reply.Text != "user unknown" || got.Class != bounce.InvalidRecipient {
				t.Errorf("reply %+v, class %v", got.Reply, got.Class)
			}
		})
	}
}

// A token whose message is not on record proves nothing about a recipient.
func TestWithoutRecordsNothingIsSure(t *testing.T) {
	d := newDesk(t)
	token := d.keys.Make(returnpath.Bounce, returnpath.Token{Message: sent + 1, Recipient: 0, Day: noon})
	d.must(envelope.Address("b-"+token+"@b.example.com"), failed("ann@example.net"), "x", Recorded)
	if r := d.books.written[0]; r.Follows || r.ID != sent+1 || r.Recipient != "ann@example.net" || r.Message != nil {
		t.Errorf("%+v", r)
	}
}

// Relays with a common secret make the same ids in the same millisecond: a token of another relay is about another
// message than the one here with the same id.
func TestATokenOfAnotherNode(t *testing.T) {
	d := newDesk(t)
	token := d.keys.Make(returnpath.Bounce, returnpath.Token{Node: d.cfg.Node + 1, Message: sent, Recipient: 0, Day: noon})
	to := envelope.Address("b-" + token + "@b.example.com")
	d.must(to, failed("ann@example.net"), "x", Recorded)
	if r := d.books.written[0]; r.Follows || r.Message != nil || r.Recipient != "ann@example.net" || r.About != ByFields {
		t.Errorf("%+v", r)
	}
	d.must(to, failed(""), "x", Recorded)
	if r := d.books.written[1]; r.Follows || r.Recipient != "" {
		t.Errorf("%+v", r)
	}
}

// A token's owner can make any number of reports from which nothing follows. They don't make the relay forget what it
// has acted upon.
func TestIdleReportsDoNotWashOutRepeats(t *testing.T) {
	d := newDesk(t)
	d.must(d.bounceTo(0), failed(""), "x", Recorded)
	for i := range 3 * latelyKept / maxIdle {
		many := failed("")
		many.Reports = nil
		for k := range 2 * maxIdle {
			many.Reports = append(many.Reports, failed(fmt.Sprintf("x%d.%d@example.net", i, k)).Reports...)
		}
		d.must(d.bounceTo(0), many, "x", Recorded)
	}
	if n := len(d.books.written); n != 1+3*latelyKept/maxIdle*maxIdle {
		t.Errorf("%d records", n)
	}
	d.must(d.bounceTo(0), failed(""), "x", Repeated)
}

func TestReportsOfOneFactAreRecordedOnce(t *testing.T) {
	d := newDesk(t)
	d.must(d.bounceTo(0), failed(""), "x", Recorded)
	d.must(d.bounceTo(0), failed("ann@example.net"), "another text", Repeated)
	d.must(d.bounceTo(1), failed(""), "x", Recorded)
	full := failed("")
	full.Reports[0].Class = bounce.QuotaIssues
	d.must(d.bounceTo(0), full, "x", Recorded)
	d.must("postmaster@b.example.com", failed("x@example.net"), "x", Recorded)
	d.must("postmaster@b.example.com", failed("x@example.net"), "x", Recorded) // nobody knows of which message
	if len(d.books.written) != 5 {
		t.Errorf("%d records", len(d.books.written))
	}
	for i := range 3 * latelyKept {
		d.repeats.note(repeat{message: envelope.ID(i + 1)})
	}
	if n := len(d.repeats.young) + len(d.repeats.old); n > 2*latelyKept {
		t.Errorf("%d are remembered", n)
	}
}

// A rule for the provider counts, although the reader of reports knows no provider.
func TestRulesForTheProvider(t *testing.T) {
	d := newDesk(t)
	for recipient, want := range []bounce.Class{bounce.SpamBlock, bounce.QuotaIssues} {
		full := failed("")
		full.Reports[0].Class, full.Reports[0].Reply = bounce.QuotaIssues, reply.Reply{Code: 552, Enhanced: reply.Enhanced{5, 2, 2}, Text: "mailbox full"}
		d.must(d.bounceTo(recipient), full, "x", Recorded)
		if got := d.books.written[recipient].Class; got != want {
			t.Errorf("recipient %d: %v, want %v", recipient, got, want)
		}
	}
}

// A report that could not be recorded is no repeat when it comes again.
func TestTroubleIsNoRepeat(t *testing.T) {
	d := newDesk(t)
	d.books.err = errors.New("disk on fire")
	if err := d.take(d.bounceTo(0), failed(""), "x"); !errors.Is(err, d.books.err) {
		t.Fatalf("error %v", err)
	}
	d.books.err = nil
	d.must(d.bounceTo(0), failed(""), "x", Recorded)
}

func TestWhatFollowsFromEachKind(t *testing.T) {
	d := newDesk(t)
	for _, k := range []report.Kind{report.Delay, report.Delivered, report.AutoReply, report.Challenge, report.Disposition} {
		d.must(d.bounceTo(0), report.Result{Kind: k}, "x", Ignored)
	}
	own := failed("ann@example.net")
	own.Host = "Relay.Example.Com"
	d.must(d.bounceTo(0), own, "x", Own)
	if len(d.books.written) != 0 {
		t.Fatalf("recorded %+v", d.books.written[0])
	}
	u := envelope.Address("U-" + strings.ToUpper(d.token(returnpath.Unsubscribe, 1)) + "@b.example.com")
	d.must(u, report.Result{Kind: report.Unsubscribe}, "x", Unsubscribed)
	if r := d.books.unsubscribed[0]; r.Recipient != "bob@example.net" || r.Message.Tenant != "acme" {
		t.Errorf("unsubscribed %+v", r)
	}
	// People write from other addresses than the one that got the mail.
	d.must("u-"+envelope.Address(d.token(returnpath.Unsubscribe, 2)+"@b.example.com"), report.Result{Kind: report.Unsubscribe, Reports: []report.Report{{Recipient: "private@example.com"}}}, "x", Unsubscribed)
	d.must("u-"+envelope.Address(d.token(returnpath.Unsubscribe, 0)+"@b.example.com"), report.Result{Kind: report.Unsubscribe, Reports: []report.Report{{Recipient: "bob@example.net"}}}, "x", Unsubscribed)
	if r := d.books.unsubscribed; r[1].Recipient != "Carl@Example.ORG" || r[2].Recipient != "ann@example.net" {
		t.Errorf("unsubscribed %+v, %+v", r[1], r[2])
	}
	// Nobody knows who it is: a person has to look.
	d.must("postmaster@b.example.com", report.Result{Kind: report.Unsubscribe}, "x", Kept)
	d.must(d.bounceTo(returnpath.NoRecipient), report.Result{Kind: report.Unsubscribe}, "x", Kept)
}

func TestComplaints(t *testing.T) {
	d := newDesk(t)
	fields := report.Feedback{
		"feedback-type": {"Abuse"}, "user-agent": {"SomeGenerator/1.0"}, "version": {"1"}, "original-mail-from": {"<news@acme.example>"},
		"original-rcpt-to": {"<ann@example.net>", "<BOB@example.net>", "<other@example.net>"}, "reporting-mta": {"dns; mail.example.net"}, "source-ip": {"192.0.2.1"},
		"arrival-date": {"Thu, 8 Mar 2026 14:00:00 -0400"}, "incidents": {"many"}, "x-\u202eodd": {"a\x1b[2Jb\n"},
	}
	named := []report.Report{{Recipient: "ann@example.net"}, {Recipient: "BOB@example.net"}, {Recipient: "other@example.net"}}
	d.must("fbl@b.example.com", report.Result{Kind: report.Complaint, Reports: named, Feedback: fields, Tokens: []string{d.token(returnpath.Bounce, returnpath.NoRecipient)}}, "x", Recorded)
	if len(d.books.written) != 3 {
		t.Fatalf("%d records", len(d.books.written))
	}
	for i, want := range []struct {
		recipient envelope.Address
		sure      bool
	}{{"ann@example.net", true}, {"bob@example.net", true}, {"other@example.net", false}} {
		if r := d.books.written[i]; r.Recipient != want.recipient || r.Follows != want.sure || r.Kind != Complaint {
			t.Errorf("%d: %+v", i, r)
		}
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(d.books.written[0].Feedback), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"feedback_type": "abuse", "version": "1", "arrival_date": "2026-03-08T18:00:00Z", "original_rcpto_to": []any{"<ann@example.net>", "<BOB@example.net>", "<other@example.net>"},
		"reporting_mta": map[string]any{"mta_type": "dns", "name": "mail.example.net"}, "incidents": nil, "extensions": map[string]any{"incidents": []any{"many"}, "x-\u202eodd": []any{"a\x1b[2Jb\n"}},
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
	for kind, of := range map[string]report.Kind{"not-spam": report.Other, "Auth-Failure": report.Complaint} {
		d.must(d.bounceTo(1), report.Result{Kind: of, Feedback: report.Feedback{"feedback-type": {kind}}}, "x", Recorded)
		if r := d.books.written[len(d.books.written)-1]; r.Follows || r.Recipient != "bob@example.net" {
			t.Errorf("%s: %+v", kind, r)
		}
		d.repeats, d.idle = repeats{}, repeats{}
	}
	d.books.written = d.books.written[:3]
	// One that hides the address is about the token's recipient.
	d.must("abuse@b.example.com", report.Result{Kind: report.Complaint, Reports: []report.Report{{Recipient: "list@example.org"}}, Tokens: []string{d.token(returnpath.Unsubscribe, 2)}}, "x", Recorded)
	if r := d.books.written[3]; r.Recipient != "Carl@Example.ORG" || !r.Follows || r.Feedback != "" {
		t.Errorf("%+v", r)
	}
}

func TestWhatIsNotUnderstoodIsKept(t *testing.T) {
	d := newDesk(t)
	content := "From: =?utf-8?q?J=C3=BCrgen?= <j@example.net>\r\nSubject: hello\x1b[2J\r\n there\r\n\r\nbody\x00\r\n"
	d.must(d.bounceTo(0), report.Result{}, content, Kept)
	list, err := d.cfg.Folder.List(0, 10)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	k := list[0]
	if k.From != "Jürgen <j@example.net>" || k.Subject != "hello?[2J there" || k.Peer != "198.51.100.1" || k.Message != sent.String() || k.Size != int64(len(content)) {
		t.Errorf("%+v", k)
	}
	if _, got, err := d.cfg.Folder.Get(k.ID); string(got) != content || err != nil {
		t.Errorf("content %q, %v", got, err)
	}
	if _, _, err := d.cfg.Folder.Get(k.ID + 1); !errors.Is(err, ErrNotKept) {
		t.Errorf("another: %v", err)
	}
	// The bounds: three mails, 2000 octets; the oldest go first, and the rest is there after a restart.
	for range 3 {
		d.must(d.bounceTo(0), report.Result{}, content, Kept)
	}
	if s := d.cfg.Folder.Stats(); s.Messages != 3 || s.Dropped != 1 {
		t.Errorf("%+v", s)
	}
	d.must(d.bounceTo(0), report.Result{}, strings.Repeat("x", 1200), Kept)
	again, err := OpenFolder(d.cfg.Folder.dir, FolderLimits{Messages: 3, Octets: 2000})
	if err != nil || again.Stats().Messages != d.cfg.Folder.Stats().Messages || again.Stats().Octets > 2000 {
		t.Errorf("after a restart %+v, before %+v, %v", again.Stats(), d.cfg.Folder.Stats(), err)
	}
	if _, err := again.List(0, 10); err != nil {
		t.Error(err)
	}
}

func TestOnlyPartOfAMailIsNotKept(t *testing.T) {
	d := newDesk(t)
	m := &Mail{Recipients: []envelope.Address{d.bounceTo(0)}, Content: []byte("x"), Size: 2, Time: noon}
	if err := d.Take(context.Background(), d.addresses, "", m); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v", err)
	}
}

func TestForwarding(t *testing.T) {
	d := newDesk(t)
	d.forward = "postmaster@corp.example"
	d.must("postmaster@b.example.com", report.Result{}, "From: a@example.net\nSubject: x\n\nbare\x00 LF\rCR", Forwarded)
	want := "postmaster@corp.example\nDelivered-To: postmaster@b.example.com\r\nReceived: from mx.example.net ([198.51.100.1])\r\n\tby relay.example.com with ESMTP\r\n\tid s1\r\n\tfor <postmaster@b.example.com>;\r\n\tSun, 22 Nov 2026 12:00:00 +0000\r\nMessage-ID: <s1.1795348800000000000@relay.example.com>\r\nFrom: a@example.net\r\nSubject: x\r\n\r\nbare LF\r\nCR\r\n"
	if d.forwarded[0] != want {
		t.Errorf("forwarded %q\nwant %q", d.forwarded[0], want)
	}
	_, content, _ := strings.Cut(d.forwarded[0], "\n")
	if err := d.take("postmaster@b.example.com", report.Result{}, content); !errors.Is(err, ErrLoop) {
		t.Errorf("the same again: %v", err)
	}
	if err := d.take("postmaster@b.example.com", report.Result{}, strings.Repeat("Received: x\r\n", 10)+"\r\n"); !errors.Is(err, ErrLoop) {
		t.Errorf("many hops: %v", err)
	}
	// What looks like a field in the body is none.
	d.must("postmaster@b.example.com", report.Result{}, "Subject: x\r\n\r\n"+content, Forwarded)
}

func TestLayoutOfOtherVersionsIsRefused(t *testing.T) {
	d := newDesk(t)
	d.must(d.bounceTo(0), report.Result{}, "x", Kept)
	list, err := d.cfg.Folder.List(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`{"version":2}` + "\nx", "no JSON", "", strings.Repeat("x", maxKeptLine+5000)} {
		if err := writeSynced(d.cfg.Folder.path(list[0].ID)+".x", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(d.cfg.Folder.path(list[0].ID)+".x", d.cfg.Folder.path(list[0].ID)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.cfg.Folder.Get(list[0].ID); err == nil || errors.Is(err, ErrNotKept) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

// BenchmarkForgedRecipient is the cost of a stranger's guess at RCPT.
func BenchmarkForgedRecipient(b *testing.B) {
	keys, err := returnpath.New(7*24*time.Hour, bytes.Repeat([]byte{1}, 32))
	if err != nil {
		b.Fatal(err)
	}
	token := []byte(keys.Make(returnpath.Bounce, returnpath.Token{Message: sent, Day: noon}))
	token[20] ^= 1
	forged := envelope.Address("b-" + string(token) + "@b.example.com")
	addresses := NewAddresses([]string{"b.example.com"}, nil, true)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := addresses.Find(forged, keys, noon); !errors.Is(err, ErrUnknown) {
			b.Fatal(err)
		}
	}
}
