package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
)

// TestAcctLine: the columns of an acct-file by the type of the record.
func TestAcctLine(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	r := accounting.Record{
		Type: accounting.Bounce, Time: at, Message: accounting.Message{Created: at.Add(-time.Minute), Sender: "ann@a.example", Size: 1234, Campaign: "spring"}, Recipient: "bob@b.example",
		Response: reply.Reply{Code: 550, Enhanced: reply.Enhanced{5, 1, 1}, Text: "no such\nuser"}, Class: "InvalidRecipient",
		Peer:    accounting.Peer{Name: "mx.b.example", Addr: netip.MustParseAddr("192.0.2.1")},
		Attempt: accounting.Attempt{Local: netip.MustParseAddrPort("192.0.2.9:0"), EgressSource: "blue-1", EgressPool: "blue"},
	}
	zone := at.Format("-0700")
	logged, queued := "2026-11-21 12:00:00"+zone, "2026-11-21 11:59:00"+zone
	bounce := "b|" + logged + "|" + queued + "|ann@a.example|bob@b.example|failed|5.1.1|smtp;550 5.1.1 no such / user|mx.b.example (192.0.2.1)|" +
		"bad-mailbox|smtp||smtp|192.0.2.9|192.0.2.1|1234|blue-1|blue|spring|b.example/blue-1"
	deferred := r
	deferred.Type, deferred.Class, deferred.Response = accounting.TransientFailure, "", reply.Reply{Code: 421, Text: "busy"}
	received := accounting.Record{
		Type: accounting.Reception, Time: at, Message: accounting.Message{Sender: "ann@a.example", Size: 1234, Key: "shop"}, Recipient: "bob@b.example",
		Response: reply.Reply{Code: 250}, Peer: accounting.Peer{Name: "app", Addr: netip.MustParseAddr("10.0.0.1")},
	}
	for _, c := range []struct {
		record accounting.Record
		want   string
	}{
		{r, bounce},
		{deferred, strings.NewReplacer("b|"+logged, "t|"+logged, "failed|5.1.1|smtp;550 5.1.1 no such / user", "delayed|4.0.0|smtp;421 busy", "bad-mailbox", "other").Replace(bounce)},
		{received, "r|" + logged + "|" + logged + "|ann@a.example|bob@b.example||||||api|app 10.0.0.1||||1234||||b.example"},
	} {
		if got := strings.Join(acctLine(&c.record), "|"); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}
