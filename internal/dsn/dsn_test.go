package dsn

import (
	"bytes"
	"flag"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

const content = "Received: from a by b; Wed, 4 Mar 2026 05:00:00 +0000\r\n" +
	"From: Ann <ann@client.example>\r\nTo: bob@remote.example\r\n" +
	"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nMessage-ID: <1@client.example>\r\n\r\nHello Bob\r\n"

func report(kind Kind) Report {
	m := &envelope.Message{
		Sender: "ann@client.example", EnvID: "QQ 314=159", Received: now.Add(-time.Hour), Size: int64(len(content)),
	}
	return Report{
		Kind: kind, Message: m, Content: strings.NewReader(content), From: "Mail Delivery System <postmaster@relay.example>",
		Hostname: "relay.example", Now: now, ID: "01hq3zd1w0000", ReturnLimit: 64 << 10,
		Recipients: []Recipient{
			{
				Recipient: envelope.Recipient{Address: "bob@remote.example", ORcpt: "rfc822;robert@old.example"},
				Reply:     reply.Reply{Code: 550, Enhanced: reply.Enhanced{5, 1, 1}, Text: "no such user here\nsee https://remote.example/help/550-5.1.1-about-users-that-do-not-exist", Command: "RCPT"},
				Host:      "mx1.remote.example", LastAttempt: now.Add(-time.Minute), RetryUntil: now.Add(24 * time.Hour),
			},
			{
				Recipient: envelope.Recipient{Address: "eve@gone.example"},
				Reply:     reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "mx.gone.example[192.0.2.9]:25 refused the connection"),
			},
		},
	}
}

func TestGolden(t *testing.T) {
	for name, kind := range map[string]Kind{"failed": Failed, "delayed": Delayed, "delivered": Delivered} {
		r := report(kind)
		if kind == Delivered {
			for i := range r.Recipients {
				r.Recipients[i].Reply = reply.Reply{Code: 250, Text: "queued as 1234", Command: "content"}
				r.Recipients[i].Host = "mx1.remote.example"
			}
			r.Recipients[1].Relayed = true
		}
		n, err := Build(r)
		if err != nil {
			t.Fatal(err)
		}
		file := "testdata/" + name + ".eml"
		if *update {
			if err := os.WriteFile(file, n.Content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(n.Content, want) {
			t.Errorf("%s differs; go test -update ./internal/dsn writes it anew. Got:\n%s", file, n.Content)
		}
		parts(t, n)
	}
}

type section struct{ kind, body string }

// parts reads a notification as a mail program does.
func parts(t interface {
	Helper()
	Fatalf(string, ...any)
}, n Notification) []section {
	t.Helper()
	m, err := mail.ReadMessage(bytes.NewReader(n.Content))
	if err != nil {
		t.Fatalf("notification: %v\n%s", err, n.Content)
	}
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/report" || params["report-type"] != "delivery-status" {
		t.Fatalf("type %s %v, %v", kind, params, err)
	}
	var out []section
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := r.NextPart()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("part %d: %v\n%s", len(out), err, n.Content)
		}
		body, err := io.ReadAll(p) // decodes quoted-printable
		if err != nil {
			t.Fatalf("part %d: %v", len(out), err)
		}
		out = append(out, section{p.Header.Get("Content-Type"), string(body)})
	}
}

func build(t *testing.T, r Report) (Notification, []section) {
	t.Helper()
	n, err := Build(r)
	if err != nil {
		t.Fatal(err)
	}
	return n, parts(t, n)
}

func TestWhatComesBackFollowsRET(t *testing.T) {
	for _, c := range []struct {
		name string
		kind Kind
		ret  envelope.Ret
		size int64
		want string
	}{
		{"small failure", Failed, envelope.RetDefault, 100, "message/rfc822"},
		{"asked for all", Failed, envelope.RetFull, 100, "message/rfc822"},
		{"asked for headers", Failed, envelope.RetHeaders, 100, "text/rfc822-headers"},
		{"too large", Failed, envelope.RetFull, 1 << 20, "text/rfc822-headers"},
		{"a delay", Delayed, envelope.RetFull, 100, "text/rfc822-headers"},
		{"a success", Delivered, envelope.RetFull, 100, "text/rfc822-headers"},
	} {
		r := report(c.kind)
		r.Message.Ret, r.Message.Size = c.ret, c.size
		_, ps := build(t, r)
		if got := ps[2].kind; got != c.want {
			t.Errorf("%s: %s comes back, want %s", c.name, got, c.want)
		}
		if hasBody := strings.Contains(ps[2].body, "Hello Bob"); hasBody != (c.want == "message/rfc822") {
			t.Errorf("%s: body comes back: %v", c.name, hasBody)
		}
	}
}

func TestInternationalReport(t *testing.T) {
	r := report(Failed)
	r.Message.UTF8, r.Message.Sender = true, "änne@client.example"
	r.Recipients[0].Address = "bøb@remote.example"
	r.Content = strings.NewReader("Subject: Grüße\r\n\r\nHallo\r\n")
	n, ps := build(t, r)
	if !n.UTF8 || !n.EightBit {
		t.Errorf("utf8 %v, eight bit %v", n.UTF8, n.EightBit)
	}
	if ps[1].kind != "message/global-delivery-status" || !strings.Contains(ps[1].body, "Final-Recipient: utf-8; bøb@remote.example") {
		t.Errorf("status %s:\n%s", ps[1].kind, ps[1].body)
	}
	if ps[2].kind != "message/global" {
		t.Errorf("the original came back as %s", ps[2].kind)
	}
}

func TestReportToASenderWithoutUTF8IsASCII(t *testing.T) {
	r := report(Failed)
	r.Recipients[0].ORcpt = "utf-8;bøb@remote.example"
	r.Recipients[0].Reply.Text = "Postfach voll: Übergröße"
	n, ps := build(t, r)
	if n.UTF8 || n.EightBit || hasEightBit(n.Content) {
		t.Errorf("a plain report has octets above 127:\n%s", n.Content)
	}
	if !strings.Contains(ps[1].body, `Original-Recipient: utf-8; b\x{F8}b@remote.example`) {
		t.Errorf("status:\n%s", ps[1].body)
	}
}

// What expired met trouble of class 4, and a mailing list must see that.
func TestStatusFollowsTheLastReply(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		reply reply.Reply
		want  string
	}{
		{Failed, reply.Reply{Code: 550, Enhanced: reply.Enhanced{5, 1, 1}}, "5.1.1"},
		{Failed, reply.Reply{Code: 550}, "5.0.0"},
		{Failed, reply.Reply{Code: 451, Enhanced: reply.Enhanced{4, 4, 1}}, "4.4.1"},
		{Failed, reply.Reply{}, "4.4.7"},
		{Failed, reply.Reply{Code: 550, Enhanced: reply.Enhanced{2, 0, 0}}, "5.0.0"},
		{Delayed, reply.Reply{Code: 451, Enhanced: reply.Enhanced{4, 2, 2}}, "4.2.2"},
		{Delayed, reply.Reply{}, "4.0.0"},
		{Delivered, reply.Reply{Code: 250}, "2.0.0"},
		{Delivered, reply.Reply{Code: 250, Enhanced: reply.Enhanced{2, 1, 5}}, "2.1.5"},
	} {
		r := report(c.kind)
		r.Recipients = r.Recipients[:1]
		r.Recipients[0].Reply = c.reply
		if _, ps := build(t, r); !strings.Contains(ps[1].body, "\r\nStatus: "+c.want+"\r\n") {
			t.Errorf("%v %+v: want %s in\n%s", c.kind, c.reply, c.want, ps[1].body)
		}
	}
}

// People read what the other side said as it was said, although the report has no octet above
// 127.
func TestTextForPeopleKeepsItsLanguage(t *testing.T) {
	r := report(Failed)
	r.Recipients[0].Reply.Text = "Postfach voll: Übergröße"
	n, ps := build(t, r)
	if n.EightBit || hasEightBit(n.Content) {
		t.Error("octets above 127")
	}
	if ps[0].kind != "text/plain; charset=utf-8" || !strings.Contains(ps[0].body, "Postfach voll:\r\n    Übergröße") || !strings.Contains(ps[0].body, "Grüße") {
		t.Errorf("%s:\n%s", ps[0].kind, ps[0].body)
	}
	if !strings.Contains(ps[1].body, "Postfach voll: ?bergr??e") {
		t.Errorf("status:\n%s", ps[1].body)
	}
}

func TestBoundaryIsNotInTheContent(t *testing.T) {
	r := report(Failed)
	r.Content = strings.NewReader("Subject: x\r\n\r\n--=_01hq3zd1w0000--\r\nthe end\r\n--=_01hq3zd1w0000_\r\n")
	if _, ps := build(t, r); len(ps) != 3 || !strings.Contains(ps[2].body, "the end") {
		t.Errorf("%d parts: %v", len(ps), ps)
	}
}

func TestHugeHeaderIsCutAtALine(t *testing.T) {
	for name, header := range map[string]string{
		"many fields": strings.Repeat("X-Padding: "+strings.Repeat("x", 60)+"\r\n", 2000),
		"one line":    "Subject: a\r\nX-Padding: " + strings.Repeat("x", 200_000) + "\r\n",
	} {
		r := report(Failed)
		r.ReturnLimit = 1 << 20
		r.Content = strings.NewReader(header + "\r\nthe body\r\n")
		_, ps := build(t, r)
		if ps[2].kind != "text/rfc822-headers" || len(ps[2].body) > maxHeader+2 || strings.Contains(ps[2].body, "the body") {
			t.Errorf("%s: %d octets of %s", name, len(ps[2].body), ps[2].kind)
		}
		if !strings.HasSuffix(ps[2].body, "x\r\n\r\n") && !strings.HasSuffix(ps[2].body, "Subject: a\r\n\r\n") {
			t.Errorf("%s ends in %q", name, ps[2].body[len(ps[2].body)-20:])
		}
	}
}

func TestOriginalEnvelopeIDIsDecoded(t *testing.T) {
	if _, ps := build(t, report(Failed)); !strings.Contains(ps[1].body, "Original-Envelope-Id: QQ 314=159\r\n") {
		t.Errorf("status:\n%s", ps[1].body)
	}
}

func TestAdvice(t *testing.T) {
	r := report(Failed)
	_, ps := build(t, r)
	for _, want := range []string{"The mailbox does not exist.", "could not be reached."} {
		if !strings.Contains(ps[0].body, want) {
			t.Errorf("no %q in\n%s", want, ps[0].body)
		}
	}
	if _, ps = build(t, report(Delayed)); strings.Contains(ps[0].body, "The mailbox does not exist") {
		t.Errorf("advice in a report of a delay:\n%s", ps[0].body)
	}
}

// A report about a report would have no end: this is what keeps it apart from a message.
func TestMarksOfAnAutomaticReply(t *testing.T) {
	n, _ := build(t, report(Failed))
	m, err := mail.ReadMessage(bytes.NewReader(n.Content))
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"Auto-Submitted": "auto-replied", "In-Reply-To": "<1@client.example>", "References": "<1@client.example>",
		"Message-Id": "<01hq3zd1w0000@relay.example>", "To": "<ann@client.example>",
	} {
		if got := m.Header.Get(field); got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
}

// FuzzBuild: whatever a remote host says and a client sends, the report stays one message of
// three parts, with lines that are not too long and no UTF-8 where none may be.
func FuzzBuild(f *testing.F) {
	f.Add("no such user", "mx.example", "Subject: x\r\n\r\nbody", "rfc822;a@b", "id", false)
	f.Add("a\r\n\r\n--=_01hq3zd1w0000--\r\nBcc: x@y", "mx\r\nX: y", "Message-ID: <a@b>\r\n c\r\n\r\n", "x", "\x00\xff", true)
	f.Add(strings.Repeat("é", 3000), strings.Repeat("a", 3000), strings.Repeat("b", 3000), "", "", true)
	f.Fuzz(func(t *testing.T, text, host, original, orcpt, envid string, utf8 bool) {
		r := report(Failed)
		r.Message.UTF8, r.Message.EnvID = utf8, envid
		if utf8 {
			r.Recipients[1].Address = "é@gone.example"
		}
		r.Recipients[0].Reply.Text, r.Recipients[0].Host, r.Recipients[0].ORcpt = text, host, orcpt
		r.Content = strings.NewReader(original)
		n, err := Build(r)
		if err != nil {
			t.Fatal(err)
		}
		ps := parts(t, n)
		if len(ps) == 3 && original != "" && !strings.HasPrefix(strings.TrimRight(ps[2].body, "\r\n"), strings.TrimRight(original, "\r\n")) {
			t.Fatalf("%q came back as %q", original, ps[2].body)
		}
		if len(ps) != 3 && (len(ps) != 2 || original != "") {
			t.Fatalf("%d parts:\n%s", len(ps), n.Content)
		}
		own, _, _ := strings.Cut(string(n.Content), "Content-Type: text/rfc822-headers")
		own, _, _ = strings.Cut(own, "Content-Type: message/rfc822")
		own, _, _ = strings.Cut(own, "Content-Type: message/global\r\n")
		for line := range strings.SplitSeq(own, "\r\n") {
			if len(line) > 998 || strings.ContainsAny(line, "\r\n\x00") {
				t.Fatalf("line of %d octets: %q", len(line), line)
			}
		}
		if !n.EightBit && hasEightBit(n.Content) {
			t.Fatal("octets above 127 in a report that claims to have none")
		}
	})
}

// A report about a message with REQUIRETLS returns no body, even with RET=FULL (RFC 8689, 5).
func TestREQUIRETLSReturnsHeadersOnly(t *testing.T) {
	r := report(Failed)
	r.Message.RequireTLS, r.Message.Ret = true, envelope.RetFull
	n, err := Build(r)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(n.Content, []byte("Hello Bob")) || !bytes.Contains(n.Content, []byte("Message-ID: <1@client.example>")) {
		t.Errorf("the report has\n%s", n.Content)
	}
}

func TestUnreadableBodyHindersOnlyAReportThatReturnsIt(t *testing.T) {
	for _, ret := range []envelope.Ret{envelope.RetHeaders, envelope.RetFull} {
		r := report(Failed)
		r.Message.Ret = ret
		r.Content = io.MultiReader(strings.NewReader(content), iotest.ErrReader(io.ErrUnexpectedEOF))
		if _, err := Build(r); (err == nil) != (ret == envelope.RetHeaders) {
			t.Errorf("RET %v: %v", ret, err)
		}
	}
}

func TestOriginalWithoutABody(t *testing.T) {
	for _, original := range []string{"Subject: a\r\n", "Subject: a", "\r\n"} {
		r := report(Failed)
		r.Content = strings.NewReader(original)
		if _, ps := build(t, r); ps[2].kind != "message/rfc822" || strings.TrimSpace(ps[2].body) != strings.TrimSpace(original) {
			t.Errorf("%q comes back as %s %q", original, ps[2].kind, ps[2].body)
		}
	}
}

// TestReportsOfBy: mail that ends by BY ends for want of time; what was relayed was not delivered (RFC 2852, 4.1.4).
func TestReportsOfBy(t *testing.T) {
	for _, c := range []struct {
		kind       Kind
		by         string
		text, none string
	}{
		{Failed, "60;R", "asked for", "fix the problem"},
		{Failed, "7200;R", "fix the problem", "asked for"}, // a host refused it in time
		{Delivered, "7200;N", "was relayed to", "requested"},
		{Delivered, "7200;N", "Subject: Your message was relayed", "was delivered"},
	} {
		r := report(c.kind)
		by, _ := envelope.ParseBy(c.by, now.Add(-time.Hour))
		r.Message.Marks = []string{by.Mark()}
		n, _ := build(t, r)
		text, _, _ := strings.Cut(strings.ReplaceAll(string(n.Content), "\r\n", " "), "message/delivery-status")
		if !strings.Contains(text, c.text) || strings.Contains(text, c.none) {
			t.Errorf("%s: %s", c.by, text)
		}
	}
}

// TestReplyWithoutItsHost: the queue keeps the reply of a host, not which host it was.
func TestReplyWithoutItsHost(t *testing.T) {
	r := report(Delayed)
	r.Recipients[0].Reply, r.Recipients[0].Host = reply.Reply{Code: 451, Text: "later", Command: "RCPT"}, ""
	if _, s := build(t, r); !strings.Contains(s[0].body, "Reported by the remote server: 451 later") {
		t.Error(s[0].body)
	}
}
