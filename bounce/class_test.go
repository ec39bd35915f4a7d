package bounce

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"example.org/mta/internal/reply"
)

// sample is a line of testdata/replies.tsv.
type sample struct {
	class    Class
	provider string
	reply.Reply
}

func samples(t testing.TB) (all []sample) {
	f, err := os.Open("testdata/replies.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if strings.HasPrefix(in.Text(), "#") {
			continue
		}
		field := strings.Split(in.Text(), "\t")
		if len(field) != 5 || !strings.HasPrefix(field[3], "http") {
			t.Fatalf("not a sample: %q", in.Text())
		}
		class, err := ParseClass(field[0])
		if err != nil {
			t.Fatal(err)
		}
		r := reply.Parse(strings.ReplaceAll(field[4], " / ", "\n"))
		r.Command = field[2]
		all = append(all, sample{class, field[1], r})
	}
	return all
}

func TestProvidersReplies(t *testing.T) {
	providers := make(map[string]bool)
	all := samples(t)
	for _, s := range all {
		providers[s.provider] = true
		if got := Of(s.Reply); got != s.class {
			t.Errorf("%s, %s: %v, want %v: %s", s.provider, s.Command, got, s.class, s.Reply)
		}
	}
	if len(all) < 200 || len(providers) < 30 {
		t.Errorf("%d replies of %d providers", len(all), len(providers))
	}
}

func TestOf(t *testing.T) {
	for _, x := range []struct {
		command, text string
		want          Class
	}{
		{"RCPT", "250 2.1.5 ok", None},
		{"RCPT", "550 5.1.1 <spamhaus.org@example.com> user unknown", InvalidRecipient}, // an address is no word
		{"RCPT", "550 5.1.1 your IP address is blacklisted", SpamBlock},                 // whatever its status
		{"RCPT", "554 IP address is blacklisted", SpamBlock},
		{"RCPT", "550 5.4.4 <ann@example.com> is at an invalid domain", BadDomain}, // the route is missing for good
		{"RCPT", "554 5.4.4 unable to route: host name not found", BadDomain},
		{"RCPT", "450 4.4.4 host not found", DNSFailure},
		{"RCPT", "550 5.4.4 no route for now", RoutingErrors},
		{"EHLO", "501 5.4.4 invalid domain", PolicyRelated}, // ours, not the recipient's
		{"RCPT", "550 5.1.1 this account is inactive", InvalidRecipient},
		{"RCPT", "550 this account is inactive", InactiveMailbox},
		{"RCPT", "550 <ann@example.com>: Recipient address rejected.", Uncategorized},
		{"content", "554 5.7.0 virus found, content rejected", VirusRelated},
		{"content", "554 duplicate header DKIM-Signature", ContentRelated},
		{"content", "550 5.7.1 two authors in the From field: more than one mailbox in From", ContentRelated},
		{"content", "554 5.6.1 content rejected", ContentRelated},
		{"RCPT", "504 we do not know that parameter", ProtocolErrors},
		{"content", "504 we do not know that parameter", ProtocolErrors},
		{"RCPT", "550 No", Uncategorized},
		{"MAIL", "550 No", PolicyRelated},
		{"content", "554 Transaction failed", PolicyRelated},
		{"greeting", "554 No SMTP service here", PolicyRelated},
		{"greeting", "421 4.3.2 closing down", HostFailure},
		{"RCPT", "451 4.3.0 try later", HostFailure},
		{"RCPT", "450 4.1.1 unverified address", HostFailure},
		{"RCPT", "452 4.5.3 too many", TooManyRecipients},
		{"RCPT", "452 4.2.2 full", QuotaIssues},
		{"RCPT", "450 try again later", TransientFailure},
		{"RCPT", "451 4.7.1 please come again", TransientFailure},
		{"RCPT", "450 4.7.1 Greylisted, come again", Greylisted},
		{"RCPT", "550 5.7.1 no", PolicyRelated},
		{"RCPT", "554 5.7.1 <ann@example.com>: Recipient address rejected: User unknown", InvalidRecipient},
		{"RCPT", "554 5.7.1 <ann@example.com>: Recipient address rejected: Access denied", PolicyRelated},
		{"RCPT", "554 ann not listed in Domino Directory", InvalidRecipient},
		{"RCPT", "554 5.7.1 <ann@example.com>: Relay access denied", RelayDenied},
		{"content", "550 5.6.0 bad header", ContentRelated},
	} {
		r := reply.Parse(x.text)
		r.Command = x.command
		if got := Of(r); got != x.want {
			t.Errorf("%s: %s: %v, want %v", x.command, x.text, got, x.want)
		}
	}
}

func TestWhatThisRelaySays(t *testing.T) {
	for _, x := range []struct {
		command, text string
		want          Class
	}{
		{"connect", "451 4.4.1 192.0.2.1: blocked using zen.spamhaus.org", NoAnswerFromHost}, // it only quotes
		{"queue", "550 5.1.1 address is suppressed since 2026-11-01", Suppressed},
		{"queue", "451 4.4.7 no delivery was attempted before the message expired", MessageExpired},
		{"queue", "554 5.7.0 the administrator of this relay gave up delivery", Administrative},
		{"queue", "554 5.3.0 the content of the message was damaged on this relay's disk", LocalFailure},
		{"route", "550 5.1.2 the domain example.com does not exist", BadDomain},
		{"route", "556 5.1.10 the domain example.com does not accept mail (null MX)", BadDomain},
		{"route", "451 4.4.3 the DNS gives no answer for example.com: timeout", DNSFailure},
		{"route", "554 5.4.6 mail for example.com loops back to this relay", RoutingErrors},
		{"RCPT", "421 4.4.2 connection lost", BadConnection},
		{"STARTTLS", "454 4.7.5 the TLS handshake failed", BadConfiguration},
		{"DKIM", "451 4.7.5 the key can't be read", LocalFailure},
		{"RCPT", "550 5.7.1 relaying denied for ann@example.com", RelayDenied},
		{"content", "552 5.3.4 message larger than 100 octets", MessageTooLarge},
		{"AUTH", "535 5.7.8 user name or password is wrong", AuthenticationFailed},
		{"MAIL", "450 4.7.1 tenant acme may submit 10/s; try again in 5 seconds", RateLimited},
	} {
		r := reply.Parse(x.text)
		r.Command, r.Local = x.command, true
		if got := Of(r); got != x.want {
			t.Errorf("%s: %s: %v, want %v", x.command, x.text, got, x.want)
		}
	}
}

func TestRulesOfAnOperatorComeFirst(t *testing.T) {
	var c Classifier
	ask := func(line, provider string) Class {
		r := reply.Parse(line)
		r.Command = "RCPT"
		first, second := c.Of(&r, provider), c.Of(&r, provider) // by its rules, and from memory
		if first != second {
			t.Errorf("%s: %v, then %v", line, first, second)
		}
		return first
	}
	const said = "550 5.7.1 Quota of the TEAM is used up"
	if got := ask(said, "acme"); got != PolicyRelated {
		t.Errorf("without rules: %v", got)
	}
	c.SetRules([]Named{
		{"team", Rule{Class: QuotaIssues, Provider: "acme", Phrases: []string{"quota of the team"}}},
		{"odd", Rule{Class: HostFailure, Codes: []int{554}, Patterns: []*regexp.Regexp{regexp.MustCompile(`(?i)^554 5\.7\.1 odd[0-9]`)}}},
		{"any", Rule{Class: RateLimited, Status: []Status{{5, 7, 100, 200}}}},
	})
	for _, x := range []struct {
		line, provider string
		want           Class
	}{
		{said, "acme", QuotaIssues}, {said, "other", PolicyRelated},
		{"554 5.7.1 ODD7", "", HostFailure}, {"554 5.7.1 so odd7", "", PolicyRelated}, {"550 5.7.1 odd7", "", PolicyRelated},
		{"550 5.7.150 no", "", RateLimited}, {"550 5.7.201 no", "", PolicyRelated}, {"250 2.0.0 quota of the team", "acme", None},
	} {
		if got := ask(x.line, x.provider); got != x.want {
			t.Errorf("%s of %q: %v, want %v", x.line, x.provider, got, x.want)
		}
	}
	if _, name := c.Explain(&reply.Reply{Code: 550, Text: "quota of the team"}, "acme"); name != "team" {
		t.Errorf("decided by %q", name)
	}
	c.SetRules(nil)
	if got := ask(said, "acme"); got != PolicyRelated {
		t.Errorf("after the rules were taken back: %v", got)
	}
}

// TestTheMemoryIsBounded: however many texts a host invents.
func TestTheMemoryIsBounded(t *testing.T) {
	var c Classifier
	for i := range 5 * maxSeen {
		c.Of(&reply.Reply{Code: 550, Text: fmt.Sprintf("user unknown %d", i)}, "")
	}
	if n := len(c.seen.now) + len(c.seen.old); n > 2*maxSeen {
		t.Errorf("%d replies are remembered", n)
	}
	c.Of(&reply.Reply{Code: 550, Text: strings.Repeat("long ", 1000) + "a"}, "")
	for k := range c.seen.now {
		if len(k.text) > maxRemembered {
			t.Errorf("a text of %d octets is remembered", len(k.text))
		}
	}
}

// TestManyAskWhileRulesChange is for the race detector: each answer is that of one set of rules.
func TestManyAskWhileRulesChange(t *testing.T) {
	var c Classifier
	rules := []Named{{"odd", Rule{Class: MailboxBusy, Phrases: []string{"frobnicated"}}}}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 500 {
				r := reply.Reply{Code: 550, Command: "RCPT", Text: fmt.Sprint("frobnicated ", i%50)}
				if got := c.Of(&r, ""); got != MailboxBusy && got != Uncategorized {
					t.Errorf("%v", got)
				}
			}
		})
	}
	for i := range 200 {
		c.SetRules(rules[:i%2])
	}
	all.Wait()
	c.SetRules(rules)
	if got := c.Of(&reply.Reply{Code: 550, Command: "RCPT", Text: "frobnicated 1"}, ""); got != MailboxBusy {
		t.Errorf("%v from memory, after the rules have changed", got)
	}
}

func TestNames(t *testing.T) {
	for _, c := range Classes() {
		if back, err := ParseClass(c.String()); err != nil || back != c {
			t.Errorf("%v becomes %v: %v", c, back, err)
		}
	}
	if _, err := ParseClass(""); err == nil || None.String() != "" {
		t.Error("None has a name")
	}
}

func BenchmarkSeen(b *testing.B) {
	var c Classifier
	all := samples(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Of(&all[i%len(all)].Reply, "google")
	}
}

// BenchmarkOperatorsRules has 135 patterns of an operator before the built-in rules, and replies that were
// never seen.
func BenchmarkOperatorsRules(b *testing.B) {
	var c Classifier
	var rules []Named
	for i := range 135 {
		p := regexp.MustCompile(fmt.Sprintf(`(?i)^5[0-9]{2} .*(over the limit|beyond the quota) of team-%d\b.*[0-9]+ MB`, i))
		rules = append(rules, Named{fmt.Sprint(i), Rule{Class: QuotaIssues, Patterns: []*regexp.Regexp{p}}})
	}
	c.SetRules(rules)
	all := samples(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Explain(&all[i%len(all)].Reply, "google")
	}
}

func BenchmarkOf(b *testing.B) {
	all := samples(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Of(all[i%len(all)].Reply)
	}
}
