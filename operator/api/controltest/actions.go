package controltest

import (
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
)

// OpenAudit gives the relay an audit log in a directory, with some actions of the last days in it. The caller closes it.
func (r *Relay) OpenAudit(dir string) (*audit.Log, error) {
	clock := r.Now
	l, err := audit.Open(audit.Config{Dir: dir, Now: func() time.Time { return clock }})
	if err != nil {
		return nil, err
	}
	uid := uint32(1000)
	alice := audit.Actor{Kind: api.BySocket, User: "alice", UID: &uid, PID: 4711}
	anna := audit.Actor{Kind: api.ByConsole, User: "anna", Address: "192.0.2.7"}
	for _, a := range []struct {
		ago  time.Duration
		line audit.Line
	}{
		{50 * time.Hour, audit.Line{Actor: alice, Action: "queue remove", Subject: "domain=old.example", Count: 1204, Reason: "ticket 4711", Outcome: audit.Done}},
		{26 * time.Hour, audit.Line{Actor: anna, Action: "login", Subject: "how=password", Outcome: audit.Refused, Error: "wrong user or password"}},
		{25 * time.Hour, audit.Line{Actor: anna, Action: "login", Subject: "how=password", Outcome: audit.Done}},
		{25 * time.Hour, audit.Line{Actor: anna, Action: "sites suspend", Subject: "site=slow.example for=30m", Count: 1, Reason: "postmaster asked us to", Outcome: audit.Done}},
		{2 * time.Hour, audit.Line{Actor: alice, Action: "config reload", Outcome: audit.Refused, Error: "mta.conf:12:3: unknown setting \"hostnam\""}},
	} {
		clock = r.Now.Add(-a.ago)
		if err := l.Add(a.line); err != nil {
			return nil, err
		}
	}
	clock = r.Now
	r.Audit = l
	return l, nil
}
