package delivery

import (
	"regexp"
	"testing"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/reply"
	"example.org/mta/lab/sink"
)

// A rule is for what hosts say. What this relay answers in a host's place leads to no action, whatever the
// rule: one could feed on its own results.
func TestOwnWordsAreNotJudged(t *testing.T) {
	refuse := func(c sink.Command) (a sink.Answer) {
		if c.Phase == sink.Mail {
			a.Reply = "552 5.3.4 too large"
		}
		return a
	}
	for name, x := range map[string]struct {
		host    sink.Config
		own     bool
		actions int
	}{
		"the host's": {sink.Config{Hook: refuse}, false, 1},
		"our own":    {sink.Config{MaxSize: 1}, true, 0}, // by what EHLO said
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				actions := 0
				w := newWorld(t, func(c *Config) {
					unhurried(Limits{})(c)
					c.Backoff = []Rule{{Name: "any", Pattern: regexp.MustCompile("."), Suspend: time.Hour}}
					c.OnAction = func(string, destdb.Action) { actions++ }
				})
				defer w.end()
				w.send(routeTo("a", tier(w.host("mx", x.host))), 1)
				r := w.awaitResults(1, time.Minute)[0].Reply
				if r.Code != 552 || r.Local != x.own {
					t.Fatalf("the result is %v, our own: %v", r, r.Local)
				}
				if actions != x.actions {
					t.Errorf("%d actions after %v, want %d", actions, r, x.actions)
				}
			})
		})
	}
}

func TestDefaultRules(t *testing.T) {
	rules := DefaultRules()
	for _, x := range []struct {
		provider, line string
		session        bool
		want           string
	}{
		{"google", "421 4.7.28 Gmail has detected an unusual rate of mail originating from your IP address", false, "google-rate"},
		{"google", "450 4.2.1 The user you are trying to contact is receiving mail too quickly", false, "google-recipient-rate"},
		{"google", "550 5.1.1 The email account that you tried to reach does not exist", false, ""},
		{"microsoft", "451 4.7.650 The mail server [192.0.2.1] has been temporarily rate limited due to IP reputation", false, "microsoft-throttle"},
		{"microsoft", "550 5.7.1 Unfortunately, messages from [192.0.2.1] weren't sent. (S3140)", false, "microsoft-block"},
		{"yahoo", "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to user complaints", false, "yahoo-deferred"},
		{"", "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred", false, "blocked"},
		{"", "554 IP=192.0.2.1 - A problem occurred. (Ask your postmaster for help or to contact tosa@rx.t-online.de to clarify.) (BL)", true, "blocked"},
		{"gmx", "554 gmx.net Nemesis ESMTP Service not available / IP address is block listed.", true, "blocked"},
		{"comcast", "421 4.2.0 Throttled - try again later. Please see http://postmaster.comcast.net/smtp-error-codes.php#RL000001", false, "comcast-rate"},
		{"", "550 5.7.1 message content rejected as spam", false, ""},
		{"", "421 4.7.0 mx.example Too many connections from your address", true, "too-many-connections"},
		{"", "452 4.3.2 Connection rate limit exceeded", false, "rate"},
		{"", "450 4.7.1 you are sending too fast, throttled", false, "rate"},
		{"", "421 4.3.2 try later", true, "busy"},
		{"", "421 4.3.2 try later", false, ""},
		{"", "450 4.7.1 greylisted", false, ""},
		{"", "550 5.7.1 too many connections", false, ""},
	} {
		r := reply.Parse(x.line)
		if r.Command = "RCPT"; x.session {
			r.Command = "greeting"
		}
		refused, got := refusalOf(nil, x.provider, x.session, r), ""
		for i := range rules {
			if rules[i].After.Unlimited() && rules[i].matches(&refused) {
				got = rules[i].Name
				break
			}
		}
		if got != x.want {
			t.Errorf("%s %q: rule %q, want %q", x.provider, x.line, got, x.want)
		}
	}
}

// Fewer connections is no answer when there is one: it waits for its retry time, without an action.
func TestALoneConnectionIsNotMadeFewer(t *testing.T) {
	for connections, acted := range map[int]bool{1: false, 2: true} {
		bubble.Test(t, func(t *testing.T) {
			actions := 0
			w := newWorld(t, func(c *Config) {
				unhurried(Limits{Site: Scope{Connections: connections}})(c)
				c.Backoff = []Rule{{Name: "any", Pattern: regexp.MustCompile("."), Fewer: time.Hour}}
				c.OnAction = func(string, destdb.Action) { actions++ }
			})
			defer w.end()
			refusals := []sink.Refusal{{Phase: sink.Mail, Prefix: "from@", Reply: "450 4.7.0 slow down"}}
			w.send(routeTo("a", tier(w.host("mx", sink.Config{Latency: 50 * time.Millisecond, Without: sink.Pipelining, Refusals: refusals}))), 10)
			w.awaitResults(10, time.Minute)
			if actions > 0 != acted {
				t.Errorf("%d actions with %d connections", actions, connections)
			}
		})
	}
}
