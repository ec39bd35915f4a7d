package delivery

import (
	"testing"

	"mta/internal/reply"
)

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
		refused, got := refusalOf(x.provider, x.session, r), ""
		for i := range rules {
			if rules[i].matches(&refused) {
				got = rules[i].Name
				break
			}
		}
		if got != x.want {
			t.Errorf("%s %q: rule %q, want %q", x.provider, x.line, got, x.want)
		}
	}
}
