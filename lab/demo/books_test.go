package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
	"golang.org/x/time/rate"

	"example.org/mta/lab/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLettersAreTheSameForTheSameSeed(t *testing.T) {
	a, b, other := newWriter(providers(), 1), newWriter(providers(), 1), newWriter(providers(), 2)
	different := 0
	counts := make(map[int]int)
	for n := range 2000 {
		x, y, z := a.letter(n), b.letter(n), other.letter(n)
		if fmt.Sprint(x) != fmt.Sprint(y) {
			t.Fatalf("letter %d is %v and %v", n, x, y)
		}
		if fmt.Sprint(x) != fmt.Sprint(z) {
			different++
		}
		for _, r := range x.recipients {
			counts[r.provider]++
		}
		for _, line := range strings.SplitAfter(a.content(&x, time.Time{}), "\n") {
			if strings.HasPrefix(line, ".") || line != "" && !strings.HasSuffix(line, "\r\n") {
				t.Fatalf("letter %d has the line %q, which can't be sent as it is", n, line)
			}
		}
	}
	if different < 1900 {
		t.Errorf("only %d of 2000 letters differ for another seed", different)
	}
	for i, p := range providers() {
		if counts[i] == 0 {
			t.Errorf("nobody writes to %s", p.domain)
		}
	}
}

func TestSharesAreOfAHundred(t *testing.T) {
	sum := 0
	for _, p := range providers() {
		sum += p.share
		if len(p.hosts) > len(p.mx) {
			t.Errorf("%s has more hosts than MX records", p.domain)
		}
	}
	if sum != 100 {
		t.Errorf("the shares add up to %d", sum)
	}
}

const sampleReport = `From: Mail Delivery System <postmaster@relay.acme.example>
Content-Type: multipart/report; report-type=delivery-status; boundary=x
Message-ID: <r1@relay.acme.example>

--x
Content-Type: message/delivery-status

Reporting-MTA: dns; relay.acme.example

Final-Recipient: rfc822; ada.7.0@bigmail.example
Action: failed
Status: 5.1.1

Final-Recipient: rfc822; alan.7.1@bigmail.example
Action: delayed
Status: 4.4.1

--x
Content-Type: text/rfc822-headers

Subject: number 7
X-Mta-Test-Id: demo-7
--x--
`

func TestReportIsUnderstood(t *testing.T) {
	number, failed := parseReport([]byte(strings.ReplaceAll(sampleReport, "\n", "\r\n")))
	if number != 7 || fmt.Sprint(failed) != "[ada.7.0@bigmail.example]" {
		t.Errorf("the report is about letter %d and %v", number, failed)
	}
	if number, failed := parseReport([]byte("Subject: hello\r\n\r\nnothing\r\n")); number != -1 || failed != nil {
		t.Errorf("no report is about letter %d and %v", number, failed)
	}
}

// books is a small world for the account: one provider, and letters to it.
type books struct {
	world  *world
	ledger *ledger
	deal   func(id, rcpt string) // a delivery
	report func(number int, rcpt string)
}

func newBooks(t *testing.T) *books {
	t.Helper()
	rec := sink.NewRecorder(sink.Deliveries, 0)
	b := &books{ledger: newLedger(1)}
	b.world = &world{providers: []*side{{provider: provider{domain: "p.example"}, recorder: rec}}}
	server, l := sink.New(sink.Config{Recorder: rec}), sink.NewPipeListener()
	go server.Serve(l)
	t.Cleanup(server.Close)
	b.deal = func(id, rcpt string) {
		conn, err := l.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go io.WriteString(conn, "EHLO x\r\nMAIL FROM:<>\r\nRCPT TO:<"+rcpt+">\r\nDATA\r\nX-Mta-Test-Id: "+id+"\r\n\r\n.\r\nQUIT\r\n")
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatal(err)
		}
	}
	b.report = func(number int, rcpt string) {
		b.ledger.report(fmt.Appendf(nil, "Final-Recipient: rfc822; %s\r\nAction: failed\r\nX-Mta-Test-Id: demo-%d\r\n", rcpt, number))
	}
	return b
}

func (b *books) accept(number int, rcpts ...string) {
	l := letter{number: number}
	for _, r := range rcpts {
		l.recipients = append(l.recipients, recipient{address: r})
	}
	b.ledger.begin(&l)
	b.ledger.enter(&l, accepted, time.Now())
}

func TestAccountFindsEveryRecipient(t *testing.T) {
	b := newBooks(t)
	b.accept(1, "a@p.example", "b@p.example")
	b.accept(2, "c@p.example")
	b.deal("demo-1", "a@p.example")
	b.report(1, "b@p.example")
	a := settle(b.world, b.ledger, relayStats{accepted: 3, delivered: 1, bounced: 1, queued: 1}, func(_, rcpt string) bool { return rcpt == "c@p.example" })
	if a.letters != 2 || a.recipients != 3 || a.delivered != 1 || a.bounced != 1 || a.queued != 1 || len(a.faults()) != 0 {
		t.Errorf("account is %+v, faults %v", a, a.faults())
	}
	text := strings.Join(a.summary(time.Second, 2*time.Second, plain), "\n")
	if !strings.Contains(text, "Every message is accounted for.") {
		t.Errorf("summary is %s", text)
	}
}

func TestAccountSaysWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(*books)
		want string
	}{
		{"lost", func(b *books) { b.accept(1, "a@p.example") }, "1 recipients of accepted mail are neither"},
		{"twice", func(b *books) {
			b.accept(1, "a@p.example")
			b.deal("demo-1", "a@p.example")
			b.deal("demo-1", "a@p.example")
		}, "1 copies reached a provider that had the message"},
		{"delivered and bounced", func(b *books) {
			b.accept(1, "a@p.example")
			b.deal("demo-1", "a@p.example")
			b.report(1, "a@p.example")
		}, "1 recipients were reported as failed and had got"},
		{"reported twice", func(b *books) {
			b.accept(1, "a@p.example")
			b.report(1, "a@p.example")
			b.report(1, "a@p.example")
		}, "1 reports of failure were about nobody"},
		{"never submitted", func(b *books) { b.deal("demo-9", "x@p.example") }, "1 deliveries were of mail that we did not submit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBooks(t)
			tc.do(b)
			a := settle(b.world, b.ledger, relayStats{}, func(string, string) bool { return false })
			if got := a.faults(); len(got) != 1 || !strings.HasPrefix(got[0], tc.want) {
				t.Errorf("faults are %q, want %q", got, tc.want)
			}
			if text := strings.Join(a.summary(0, 0, plain), "\n"); !strings.Contains(text, "WRONG: "+tc.want) {
				t.Errorf("summary is %s", text)
			}
		})
	}
	for want, a := range map[string]account{"2 deliveries, late bounces or complaints have no event": {unheard: 2}, "1 requests to the web hook had a wrong signature": {unsigned: 1}} {
		if got := a.faults(); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("faults are %q, want %q", got, want)
		}
	}
	a := account{relay: relayStats{accepted: 3, delivered: 1}}
	if got := a.faults(); len(got) != 1 || !strings.Contains(got[0], "2 recipients are missing in the relay's own sum") {
		t.Errorf("faults are %q", got)
	}
}

// TestGeneratorEntersWhatItWasTold has a sink stand for the relay.
func TestGeneratorEntersWhatItWasTold(t *testing.T) {
	rec := sink.NewRecorder(sink.Deliveries, 0)
	server := sink.New(sink.Config{Recorder: rec, Refusals: []sink.Refusal{
		{Phase: sink.Mail, Share: 0.2, Reply: "451 4.3.2 busy"},
		{Phase: sink.End, Share: 0.1, Reply: "421 4.3.2 shutting down"},
		{Phase: sink.Rcpt, Share: 0.05, Sticky: true, Reply: "550 5.7.1 never"},
	}, Drop: map[sink.Phase]float64{sink.End: 0.02, sink.Kept: 0.02}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(server.Close)
	g := &generator{addr: l.Addr().String(), writer: newWriter(providers(), 1), ledger: newLedger(len(providers())),
		messages: 500, connections: 10, pace: rate.NewLimiter(rate.Inf, 1)}
	if err := g.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for number, e := range g.ledger.mu.letters {
		id := fmt.Sprintf("demo-%d", number)
		for i, r := range e.recipients {
			has := rec.Has(id, r.address)
			if e.fates[i]&accepted != 0 && !has {
				t.Errorf("%s for %s is in the ledger and was not taken", id, r.address)
			}
			if e.fates[i] == 0 && has {
				t.Errorf("%s for %s was taken and is not in the ledger", id, r.address)
			}
		}
	}
	letters, _, _, _ := g.ledger.sums()
	if letters < 350 || letters == 500 || g.waits.Load() == 0 || g.refused.Load() == 0 {
		t.Errorf("%d letters accepted, %d times told to wait, %d refused", letters, g.waits.Load(), g.refused.Load())
	}
}

func TestGeneratorEndsWithItsContext(t *testing.T) {
	server := sink.New(sink.Config{Swallow: map[sink.Phase]float64{sink.Data: 1}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := &generator{addr: l.Addr().String(), writer: newWriter(providers(), 1), ledger: newLedger(len(providers())),
		messages: 500, connections: 3, pace: rate.NewLimiter(rate.Inf, 1)}
	if err := g.run(ctx); err != nil {
		t.Errorf("run: %v", err)
	}
}

func TestWorldIsAsItsZoneSays(t *testing.T) {
	w, err := startWorld(1, 100, newAftermath(), func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	for _, s := range w.sides() {
		m, err := dns.Exchange(new(dns.Msg).SetQuestion(s.domain+".", dns.TypeMX), w.dnsAddr)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Answer) != len(s.mx) || (len(s.mx) == 0) != (m.Rcode == dns.RcodeNameError) {
			t.Errorf("%s has %d MX records, code %d", s.domain, len(m.Answer), m.Rcode)
		}
	}
	// Best exchanger of all, by its address.
	m, err := dns.Exchange(new(dns.Msg).SetQuestion("mx2.halfgone.example.", dns.TypeA), w.dnsAddr)
	if err != nil || len(m.Answer) != 1 {
		t.Fatalf("mx2.halfgone.example: %v, %v", m, err)
	}
	conn, err := net.Dial("tcp", net.JoinHostPort(m.Answer[0].(*dns.A).A.String(), w.port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	banner := make([]byte, 100)
	n, err := conn.Read(banner)
	if got := string(banner[:n]); err != nil || !strings.HasPrefix(got, "220 mx2.halfgone.example ") {
		t.Errorf("banner is %q (%v)", got, err)
	}
}

// Rates are those of the last two seconds, and of the first line since the begin.
func TestTrend(t *testing.T) {
	var tr trend
	submitted := int64(0)
	for i, c := range []struct {
		more int64
		want float64
	}{{100, 100}, {100, 100}, {100, 100}, {300, 200}} {
		submitted += c.more
		at := time.Duration(i+1) * time.Second
		if got, _ := tr.add(at, submitted, 0); got != c.want {
			t.Errorf("after %v: %g a second, want %g", at, got, c.want)
		}
	}
}

// TestDeliveriesDuringTheAccount: an interrupted relay delivers while the account is made. That is no mail of nobody.
func TestDeliveriesDuringTheAccount(t *testing.T) {
	b := newBooks(t)
	b.accept(1, "a@p.example")
	a := settle(b.world, b.ledger, relayStats{accepted: 1, queued: 1}, func(_, rcpt string) bool {
		b.deal("demo-1", rcpt)
		return true
	})
	if a.stray != 0 || a.queued != 1 || len(a.faults()) != 0 {
		t.Errorf("%+v: %v", a, a.faults())
	}
}
