package submission

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/submission/intake"
)

// A message with a time is stored with it, and without the fields that said so.
func TestT1_ScheduledByHeader(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{MaxHold: 48 * time.Hour}}, func(t *testing.T, r *relay) {
		now := time.Now()
		rfc3339 := func(d time.Duration) string { return now.Add(d).UTC().Format(time.RFC3339) }
		p := r.greeted()
		for i, c := range []struct {
			fields  string
			release time.Duration // from now; negative: at once
			spread  time.Duration
		}{
			{"", -1, 0},
			{"X-Hold-For: 3600\r\n", time.Hour, 0},
			{"x-hold-for:3600 \r\n", time.Hour, 0},
			{"X-Hold-For: 1h\r\n", time.Hour, 0},
			{"X-Hold-For: 1h30m\r\nX-Hold-Spread: 10m\r\n", 90 * time.Minute, 10 * time.Minute},
			{"X-Hold-Until: " + rfc3339(2*time.Hour) + "\r\n", 2 * time.Hour, 0},
			{"X-Hold-Until:\r\n " + rfc3339(2*time.Hour) + "\r\n", 2 * time.Hour, 0},
			{"X-Hold-Until: " + now.Add(time.Hour+500*time.Millisecond).In(time.FixedZone("", -5*3600)).Format(time.RFC3339Nano) + "\r\n", time.Hour + time.Second, 0},
			{"X-Hold-Until: " + rfc3339(-time.Hour) + "\r\n", -1, 0},
			{"X-Hold-Spread: 1800\r\nX-Hold-For: 60\r\n", time.Minute, 30 * time.Minute},
			{"X-Hold-Spread: 1800\r\n", 0, 30 * time.Minute},
			{"X-Hold-Until: " + rfc3339(-time.Hour) + "\r\nX-Hold-Spread: 60\r\n", 0, time.Minute},
		} {
			if got := p.data("From: a@example.org\r\n" + c.fields + "Subject: later\r\n\r\nX-Hold-For: in the body\r\n"); !strings.HasPrefix(got, "250 ") {
				t.Fatalf("%q: %s", c.fields, got)
			}
			m := r.store.all(t)[i]
			switch {
			case c.release < 0 && (!m.Release.IsZero() || m.Spread != 0):
				t.Errorf("%q: to be released %v, want at once", c.fields, m.Release)
			case c.release >= 0 && (m.Release.Sub(now) != c.release || m.Spread != c.spread):
				t.Errorf("%q: to be released after %v over %v, want %v over %v", c.fields, m.Release.Sub(now), m.Spread, c.release, c.spread)
			}
			head, body, _ := strings.Cut(m.content, "\r\n\r\n")
			if strings.Contains(strings.ToLower(head), "x-hold") || !strings.HasSuffix(head, "From: a@example.org\r\nSubject: later") || body != "X-Hold-For: in the body\r\n" {
				t.Errorf("%q: stored as %q", c.fields, m.content)
			}
		}
	})
}

// What can't be read, or is not allowed, refuses the message: it must not leave early.
func TestT1_ScheduleThatIsRefused(t *testing.T) {
	refused := func(longest time.Duration, want string, fields ...string) {
		withRelay(t, Config{Intake: intake.Config{MaxHold: longest}}, func(t *testing.T, r *relay) {
			p := r.greeted()
			for _, f := range fields {
				if got := p.data(f + "\r\nSubject: x\r\n\r\n"); !strings.HasPrefix(got, want) {
					t.Errorf("%q: got %q, want %q", f, got, want)
				}
			}
			r.store.none(t)
			p.cmd("NOOP", "250")
		})
	}
	soon := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC).Format(time.RFC3339) // the bubble's time begins an hour before
	refused(24*time.Hour, "554 5.5.4 can't schedule the message: ",
		"X-Hold-For:", "X-Hold-For: 0", "X-Hold-For: -1", "X-Hold-For: 007", "X-Hold-For: 1234567890", "X-Hold-For: 60 60",
		"X-Hold-Until: tomorrow", "X-Hold-Until: 2000-01-01", "X-Hold-Until: 2000-01-01T01:00:00", "X-Hold-Until: "+strings.Repeat("9", 5000),
		"X-Hold-For: 60\r\nX-Hold-Until: "+soon, "X-Hold-For: 60\r\nX-Hold-For: 60", "X-Hold-Spread: 86401", "X-Hold-Spread: x", "X-Hold-Until: "+soon+"\r\n x",
		"X-Hold-For: 6\r\n"+strings.Repeat(" 0000000000\r\n", 100)+" 0")
	refused(24*time.Hour, "554 5.5.4 can't schedule the message: ", "X-Hold-For: 1.5h", "X-Hold-For: 1500ms", "X-Hold-For: 1h 5m",
		"X-Hold-For: none", "X-Hold-For: 9999999999d", "X-Hold-Spread: 25h")
	refused(24*time.Hour, "554 5.5.4 messages can be scheduled 86400 seconds ahead at most, spread included",
		"X-Hold-For: 86401", "X-Hold-Until: 2000-01-02T00:00:01Z", "X-Hold-For: 86400\r\nX-Hold-Spread: 1")
	refused(0, "550 5.7.1 scheduling is not allowed here", "X-Hold-For: 60", "X-Hold-Spread: 60", "X-Hold-Until: "+soon, "X-Hold-Until: rubbish")
}

// A message is given up at the time that its sender gives it, which must lie beyond its release.
func TestExpiryByHeader(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{MaxHold: 48 * time.Hour}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		send := func(fields, want string) {
			t.Helper()
			if got := p.data(fields + "Subject: x\r\n\r\n"); !strings.HasPrefix(got, want) {
				t.Errorf("%q: got %q, want %q", fields, got, want)
			}
		}
		send("X-MTA-Expires-At: 2000-01-01T02:00:00.9+01:00\r\nX-Hold-For: 30m\r\n", "250 ")
		m := r.store.one(t)
		if want := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC); !m.Expires.Equal(want) || strings.Contains(m.content, "Expires-At") {
			t.Errorf("to be given up %v, want %v; stored as %q", m.Expires, want, m.content)
		}
		const refused = "554 5.5.4 can't schedule the message: "
		send("X-MTA-Expires-At: 1999-12-31T00:00:00Z\r\n", refused+"its time of expiry has passed")
		send("X-MTA-Expires-At: 2000-01-01T01:00:00Z\r\nX-Hold-For: 1h\r\n", refused+"it would expire before it is released")
		for _, bad := range []string{"", "1h", "2000-01-01", "2000-01-01T25:00:00Z", strings.Repeat("9", 5000)} {
			send("X-MTA-Expires-At: "+bad+"\r\n", refused+"X-MTA-Expires-At: want a time")
		}
		send("X-MTA-Expires-At: 2000-01-01T01:00:00Z\r\nX-MTA-Expires-At: 2000-01-01T01:00:00Z\r\n", refused)
		r.store.one(t)
	})
}
