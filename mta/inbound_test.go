package mta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/smtp"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
	"example.org/mta/suppression"
)

// inboundConfig is a relay whose second listener takes reports from strangers. Its tenant may send what it likes.
const inboundConfig = `
	defaults { smtp_port = PORT }
	suppression { feed = true }
	tenant "acme" {
		networks         = ["127.0.0.0/8"]
		return_path      = "b.acme.example"
		unsubscribe_mail = true
	}
	listener "mx" {
		address    = "127.0.0.1:0"
		relay_from = []
		inbound {
			domains     = ["b.acme.example"]
			complaints  = ["fbl@b.acme.example"]
			unsubscribe = true
			FORWARD
		}
	}
`

// bring brings a mail to the listener for strangers, with the null sender.
func (w *world) bring(to, content string) error { return w.bringFrom("", content, to) }

func (w *world) bringFrom(sender, content string, to ...string) error {
	c, err := smtp.Dial(w.listeners.Addresses(listen.SMTP)[1])
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Mail(sender); err != nil {
		return err
	}
	for _, rcpt := range to {
		if err := c.Rcpt(rcpt); err != nil {
			return err
		}
	}
	d, err := c.Data()
	if err != nil {
		return err
	}
	fmt.Fprint(d, content)
	return d.Close()
}

func (w *world) mustBring(to, content string) {
	w.t.Helper()
	if err := w.bring(to, content); err != nil {
		w.t.Fatalf("bringing a mail to %s: %v", to, err)
	}
}

// lateBounce is a delivery report about a recipient, by a host that is not ours.
func lateBounce(recipient, status, words string) string {
	return strings.ReplaceAll(fmt.Sprintf(`From: MAILER-DAEMON@mx.box.example
Subject: Undelivered Mail Returned to Sender
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b

I could not deliver your mail.
--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.box.example

Final-Recipient: rfc822; %s
Action: failed
Status: %s
Diagnostic-Code: smtp; 550 %[2]s %s
--b--
`, recipient, status, words), "\n", "\r\n")
}

// A mail leaves with a return path, the host's late bounce comes back to it: the record has all that is known of the
// message, is durable at the 250, and the recipient is suppressed. Forged and foreign recipients are refused.
func TestALateBounce(t *testing.T) {
	w := newWorld(t, sink.Config{}, strings.Replace(inboundConfig, "FORWARD", "", 1))
	w.send("ann@client.example", "From: ann@client.example\r\nX-MTA-Campaign: spring\r\n\r\nx\r\n", "bob@box.example")
	path := w.arrived(1)[0].Sender
	sent := w.await("bob@box.example", "Delivery")
	forged := "b-" + strings.Repeat("1", 43) + "@b.acme.example"
	for to, want := range map[string]string{forged: "550 5.1.1 there is no such address here", "bob@box.example": "550 5.7.1 relaying denied", "info@b.acme.example": "550 5.1.1"} {
		if err := w.bring(to, "x"); err == nil || !strings.HasPrefix(strings.Replace(err.Error(), `"`, "", 1), want) {
			t.Errorf("to %s: %v, want %s", to, err, want)
		}
	}
	w.mustBring(strings.ToUpper(path), lateBounce("bob@box.example", "5.1.1", "user unknown"))
	rec := w.lastOf(accounting.OOB) // there is no waiting: the 250 has come
	if rec == nil {
		t.Fatal("there is no record")
	}
	if rec.ID != sent.ID || rec.Sender != "ann@client.example" || rec.Recipient != "bob@box.example" || rec.Tenant != "acme" || rec.Campaign != "spring" ||
		rec.Site != sent.Site || rec.EgressSource != sent.EgressSource || !rec.Created.Equal(sent.Created) || rec.Queue != sent.Queue {
		t.Errorf("the record is %+v, of the message %+v", rec, sent)
	}
	if rec.Class != "InvalidRecipient" || rec.MatchedBy != accounting.ByToken || rec.Response.Code != 550 || rec.Response.Status().String() != "5.1.1" || rec.Peer.Addr.String() != "127.0.0.1" {
		t.Errorf("the record is %+v", rec)
	}
	if e, listed := w.suppression.Keeps("acme", "bob@box.example"); !listed || e.Source != suppression.Report || e.Reason != "550 5.1.1 user unknown" {
		t.Errorf("suppressed %v: %+v", listed, e)
	}
	if n := w.suppression.Stats().Unwritten; n != 0 {
		t.Errorf("after the 250, %d entries are not durable", n)
	}
	// The same again is no second failure, and a recipient that the message never had is recorded only.
	w.mustBring(path, lateBounce("bob@box.example", "5.1.1", "user unknown"))
	w.mustBring(path, lateBounce("victim@box.example", "5.1.1", "user unknown"))
	if rec := w.lastOf(accounting.OOB); rec.Recipient != "victim@box.example" || rec.ID != sent.ID {
		t.Errorf("the record is %+v", rec)
	}
	if _, listed := w.suppression.Keeps("acme", "victim@box.example"); listed {
		t.Error("a stranger's report has suppressed an address that had no mail")
	}
	text := w.scrape()
	for _, want := range []string{`mta_inbound_mail_total{kind="bounce",outcome="recorded"} 2`, `mta_inbound_mail_total{kind="bounce",outcome="repeated"} 1`, "mta_inbound_kept_messages 0"} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	// A reply that no rule knows is shown to the operator.
	w.mustBring(path, lateBounce("bob@box.example", "5.0.0", "Frobnicated"))
	if all := w.unknown.List(nil); len(all) != 1 || all[0].Samples[0].Message != sent.ID.String() {
		t.Errorf("unknown replies: %+v", all)
	}
}

// lastOf returns the last record of a type, nil when there is none.
func (w *world) lastOf(kind accounting.Type) (rec *accounting.Record) {
	w.t.Helper()
	err := accounting.Read(context.Background(), w.cfg.Accounting.Path, accounting.Query{Types: []accounting.Type{kind}}, func(line []byte) (err error) {
		rec, err = accounting.Parse(line)
		return err
	}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

func TestComplaintsAndWishesByMail(t *testing.T) {
	w := newWorld(t, sink.Config{}, strings.Replace(inboundConfig, "FORWARD", "", 1))
	w.send("ann@client.example", letter, "bob@box.example")
	w.send("ann@client.example", letter, "joe@box.example")
	var complained, wish string
	for _, m := range w.arrived(2) {
		if m.Recipients[0] == "bob@box.example" {
			complained = string(m.Content)
			continue
		}
		found := regexp.MustCompile(`mailto:(u-[^>?]*)`).FindStringSubmatch(string(m.Content))
		if found == nil {
			t.Fatalf("no address to unsubscribe in\n%s", m.Content)
		}
		wish = found[1]
	}
	w.mustBring("fbl@b.acme.example", "From: fbl@box.example\r\nSubject: complaint\r\nMIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=feedback-report; boundary=\"b\"\r\n\r\n"+
		"--b\r\n\r\nspam\r\n--b\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\nUser-Agent: FBL/1.0\r\nVersion: 1\r\n"+
		"--b\r\nContent-Type: message/rfc822\r\n\r\n"+complained+"\r\n--b--\r\n")
	rec := w.lastOf(accounting.Feedback)
	if rec == nil || rec.Recipient != "bob@box.example" || rec.MatchedBy != accounting.ByReturnedToken || rec.Tenant != "acme" {
		t.Fatalf("the record is %+v", rec)
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(rec.Report), &fields); err != nil || fields["feedback_type"] != "abuse" || fields["user_agent"] != "FBL/1.0" {
		t.Errorf("feedback_report %s, %v", rec.Report, err)
	}
	if e, listed := w.suppression.Keeps("acme", "bob@box.example"); !listed || e.Source != suppression.Complaint {
		t.Errorf("complained: %v, %+v", listed, e)
	}
	w.mustBring(wish, "From: joe@box.example\r\nSubject: please\r\n\r\n")
	if rec := w.lastOf(accounting.Unsubscribe); rec == nil || rec.Recipient != "joe@box.example" || rec.Tenant != "acme" || rec.MatchedBy != accounting.ByToken {
		t.Fatalf("the record is %+v", rec)
	}
	if e, listed := w.suppression.Keeps("acme", "joe@box.example"); !listed || e.Source != suppression.Unsubscribe || !e.Expires.IsZero() {
		t.Errorf("unsubscribed: %v, %+v", listed, e)
	}
}

// wishesOf has a message delivered to each of n recipients, joe0@box.example and so on, and returns the addresses that
// unsubscribe them, with the return paths.
func (w *world) wishesOf(n int) (wishes, paths map[string]string) {
	w.t.Helper()
	for i := range n {
		w.send("ann@client.example", letter, fmt.Sprintf("joe%d@box.example", i))
	}
	wishes, paths = make(map[string]string), make(map[string]string)
	for _, m := range w.arrived(int64(n)) {
		found := regexp.MustCompile(`mailto:(u-[^>?]*)`).FindStringSubmatch(string(m.Content))
		if found == nil {
			w.t.Fatalf("no address to unsubscribe in\n%s", m.Content)
		}
		wishes[m.Recipients[0]], paths[m.Recipients[0]] = found[1], m.Sender
	}
	return wishes, paths
}

// mustBeUnsubscribed fails unless the list and the log have the end of a recipient's subscription.
func (w *world) mustBeUnsubscribed(recipient string) {
	w.t.Helper()
	e, listed := w.suppression.Keeps("acme", envelope.Address(recipient))
	if !listed || e.Source != suppression.Unsubscribe || !e.Expires.IsZero() {
		w.t.Errorf("%s: suppressed %v: %+v", recipient, listed, e)
	}
	if rec := w.lastOf(accounting.Unsubscribe); rec == nil || string(rec.Recipient) != recipient || rec.MatchedBy != accounting.ByToken {
		w.t.Errorf("%s: the last record is %+v", recipient, rec)
	}
}

// A genuine token of an address to unsubscribe decides: whatever the mail has, the subscription ends.
func TestUnsubscribesOfMailPrograms(t *testing.T) {
	archive, err := txtar.ParseFile("../bounce/report/testdata/unsubscribes.txtar")
	if err != nil || len(archive.Files) < 15 {
		t.Fatalf("%d samples, %v", len(archive.Files), err)
	}
	w := newWorld(t, sink.Config{}, strings.Replace(inboundConfig, "FORWARD", "", 1))
	wishes, _ := w.wishesOf(len(archive.Files))
	for i, f := range archive.Files {
		name, sender, _ := strings.Cut(f.Name, " ")
		recipient := fmt.Sprintf("joe%d@box.example", i)
		content := strings.NewReplacer("TO", wishes[recipient], "\n", "\r\n").Replace(string(f.Data))
		if err := w.bringFrom(strings.TrimPrefix(sender, "null"), content, wishes[recipient]); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Log(name)
		w.mustBeUnsubscribed(recipient)
	}
}

// A mail to several addresses ends the subscription of each; a return path beside them changes nothing.
func TestOneMailUnsubscribesSeveral(t *testing.T) {
	w := newWorld(t, sink.Config{}, strings.Replace(inboundConfig, "FORWARD", "", 1))
	wishes, paths := w.wishesOf(3)
	first, second, third := "joe0@box.example", "joe1@box.example", "joe2@box.example"
	content := "From: joe@box.example\r\nAuto-Submitted: auto-replied\r\n\r\nx\r\n"
	if err := w.bringFrom("joe@box.example", content, paths[third], wishes[first], wishes[second]); err != nil {
		t.Fatal(err)
	}
	for _, recipient := range []string{first, second} {
		if _, listed := w.suppression.Keeps("acme", envelope.Address(recipient)); !listed {
			t.Errorf("%s still gets mail", recipient)
		}
	}
	w.mustBeUnsubscribed(second)
	if _, listed := w.suppression.Keeps("acme", envelope.Address(third)); listed {
		t.Error("a return path has unsubscribed its recipient")
	}
	text := w.scrape()
	for _, want := range []string{`{kind="unsubscribe",outcome="unsubscribed"} 2`, `{kind="auto-reply",outcome="ignored"} 1`} {
		if !strings.Contains(text, "\nmta_inbound_mail_total"+want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// What the relay does not understand is kept for the operator, over restarts.
func TestInboundMailIsKept(t *testing.T) {
	w := newWorld(t, sink.Config{}, strings.Replace(inboundConfig, "FORWARD", "", 1))
	w.mustBring("postmaster@b.acme.example", "From: eve@box.example\r\nSubject: \x1b[2Jhello\u202e\r\n\r\nx\r\n")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	ctx := t.Context()
	l, err := w.api.Inbound.Inbound(ctx, api.Paging{Limit: 10})
	if err != nil || len(l.Mail) != 1 || l.Kept != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	m, err := w.api.Inbound.InboundMail(ctx, l.Mail[0].ID)
	if err != nil || m.Subject != "?[2Jhello?" || m.Recipients[0] != "postmaster@b.acme.example" {
		t.Errorf("%+v, %v", m, err)
	}
	if content, err := w.api.Inbound.InboundContent(ctx, m.ID); err != nil || !strings.HasSuffix(string(content), "x\r\n") {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := w.api.Inbound.InboundMail(ctx, "0000000000000"); !isNotFound(err) {
		t.Errorf("another: %v", err)
	}
}

func isNotFound(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// It is forwarded where that is configured, from the null sender, and never reported on.
func TestInboundMailIsForwarded(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}}, strings.Replace(inboundConfig, "FORWARD", `forward = "boss@box.example"`, 1))
	w.mustBring("abuse@b.acme.example", "From: eve@box.example\r\nSubject: hello\r\n\r\n\xfc\r\n")
	m := w.arrived(1)[0]
	if m.Sender != "" || !slices.Equal(m.Recipients, []string{"boss@box.example"}) || !strings.HasPrefix(string(m.Content), "Delivered-To: abuse@b.acme.example\r\n") || !strings.HasSuffix(string(m.Content), "Subject: hello\r\n\r\n\xfc\r\n") {
		t.Errorf("from %q to %v\n%s", m.Sender, m.Recipients, m.Content)
	}
	var refused *textproto.Error
	if err := w.bring("abuse@b.acme.example", string(m.Content)); !errors.As(err, &refused) || refused.Code != 554 {
		t.Errorf("the same again: %v", err)
	}
}

// A stranger's mail that is forwarded gets no signature: it would prove From.
func TestForwardedInboundMailIsNotSigned(t *testing.T) {
	w := newWorld(t, sink.Config{}, strings.Replace(inboundConfig, "FORWARD", `forward = "boss@box.example"`, 1)+dkimBlock("client.example", "")+dkimBlock("esp.example", `senders = ["*"]`))
	w.mustBring("abuse@b.acme.example", "From: ceo@client.example\r\nSubject: pay\r\n\r\nx\r\n")
	if by := signedBy(t, w.arrived(1)[0].Content); len(by) > 0 {
		t.Errorf("signed by %v", by)
	}
}

// A full disk is a 4xx, and the report comes again.
func TestInboundTroubleIsOurs(t *testing.T) {
	w := newWorld(t, sink.Config{}, strings.Replace(inboundConfig, "FORWARD", "", 1))
	folder := filepath.Join(w.cfg.DataDir, "inbound")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var refused *textproto.Error
	if err := w.bring("postmaster@b.acme.example", "x"); !errors.As(err, &refused) || refused.Code != 451 {
		t.Errorf("without a folder: %v", err)
	}
}
