package replyclass

import (
	"bufio"
	"os"
	"strings"
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
		class, ok := classOf(field[0])
		if !ok {
			t.Fatalf("%q is no class", field[0])
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
	if len(all) < 60 || len(providers) < 15 {
		t.Errorf("%d replies of %d providers", len(all), len(providers))
	}
}

func TestOf(t *testing.T) {
	for _, x := range []struct {
		command, text string
		want          Class
	}{
		{"RCPT", "250 2.1.5 ok", Delivered},
		{"RCPT", "550 5.1.1 <spamhaus.org@example.com> user unknown", InvalidRecipient}, // an address is no word
		{"RCPT", "550 5.1.1 your IP address is blacklisted", SpamBlock},                 // whatever its status
		{"RCPT", "554 IP address is blacklisted", SpamBlock},
		{"RCPT", "550 No", Uncategorized},
		{"MAIL", "550 No", PolicyRelated},
		{"content", "554 Transaction failed", PolicyRelated},
		{"greeting", "554 No SMTP service here", PolicyRelated},
		{"greeting", "421 4.3.2 closing down", HostTrouble},
		{"RCPT", "451 4.3.0 try later", HostTrouble},
		{"RCPT", "450 4.1.1 unverified address", HostTrouble},
		{"RCPT", "452 4.5.3 too many", TooManyRecipients},
		{"RCPT", "452 4.2.2 full", QuotaIssues},
		{"RCPT", "450 try again later", Unexplained},
		{"RCPT", "451 4.7.1 please come again", Unexplained},
		{"RCPT", "450 4.7.1 Greylisted, come again", Greylisted},
		{"RCPT", "550 5.7.1 no", PolicyRelated},
		{"RCPT", "554 5.7.1 <ann@example.com>: Recipient address rejected: User unknown", InvalidRecipient},
		{"RCPT", "554 5.7.1 <ann@example.com>: Recipient address rejected: Access denied", PolicyRelated},
		{"RCPT", "554 ann not listed in Domino Directory", Uncategorized},
		{"RCPT", "554 5.7.1 <ann@example.com>: Relay access denied", RelayDenied},
		{"content", "550 5.6.0 bad header", MessageRefused},
	} {
		r := reply.Parse(x.text)
		r.Command = x.command
		if got := Of(r); got != x.want {
			t.Errorf("%s: %s: %v, want %v", x.command, x.text, got, x.want)
		}
	}
	if got := Of(reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "blocked using zen.spamhaus.org")); got != Ours {
		t.Errorf("what this relay says itself: %v", got)
	}
}

func TestNames(t *testing.T) {
	for c := range Class(len(names)) {
		if back, ok := classOf(c.String()); !ok || back != c {
			t.Errorf("%v becomes %v", c, back)
		}
	}
	if Unexplained != Class(len(names)-1) {
		t.Error("a class has no name, or a name no class")
	}
}

func BenchmarkOf(b *testing.B) {
	all := samples(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Of(all[i%len(all)].Reply)
	}
}

// classOf is the inverse of String; it reports false for what is no class.
func classOf(name string) (Class, bool) {
	for i, n := range names {
		if n == name {
			return Class(i), true
		}
	}
	return Uncategorized, false
}
