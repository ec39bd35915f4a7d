package main

import (
	"net/netip"
	"testing"

	"example.org/mta/mta/accounting"
)

// TestLogOfReports: a Feedback or an Unsubscribe has no reply of a host, so its line says what was reported, and by whom.
func TestLogOfReports(t *testing.T) {
	peer := accounting.Peer{Name: "out.example.net", Addr: netip.MustParseAddr("192.0.2.7")}
	for _, c := range []struct {
		rec  accounting.Record
		want string
	}{
		{accounting.Record{Type: accounting.Feedback, Recipient: "ann@example.com", Attempt: accounting.Attempt{Site: "mx.example.com"}, Peer: peer, Report: `{"feedback_type":"abuse"}`},
			"<ann@example.com> at mx.example.com: abuse report from out.example.net[192.0.2.7]"},
		{accounting.Record{Type: accounting.Feedback, Peer: peer, Report: "{}"}, "<>: feedback report from out.example.net[192.0.2.7]"},
		{accounting.Record{Type: accounting.Unsubscribe, Recipient: "ann@example.com", Peer: peer}, "<ann@example.com>: unsubscribed, request from out.example.net[192.0.2.7]"},
	} {
		if got := logText(&c.rec); got != c.want {
			t.Errorf("%s: %q, want %q", c.rec.Type, got, c.want)
		}
	}
}
