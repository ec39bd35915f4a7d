package main

import (
	"context"
	"encoding/csv"
	"net/netip"
	"strconv"
	"strings"

	"example.org/mta/mta/accounting"
	"example.org/mta/mta/control"
)

// acctColumns are those of an acct-file of PowerMTA.
var acctColumns = []string{
	"type", "timeLogged", "timeQueued", "orig", "rcpt", "dsnAction", "dsnStatus", "dsnDiag", "dsnMta", "bounceCat", "srcType", "srcMta",
	"dlvType", "dlvSourceIp", "dlvDestinationIp", "dlvSize", "vmta", "vmtaPool", "jobId", "queue",
}

// acctTypes are the types of records that acct-files have, with their letter and DSN action.
var acctTypes = map[accounting.Type][2]string{
	accounting.Reception: {"r", ""}, accounting.Delivery: {"d", "relayed"}, accounting.TransientFailure: {"t", "delayed"},
	accounting.Bounce: {"b", "failed"}, accounting.Expiration: {"b", "failed"}, accounting.AdminBounce: {"b", "failed"},
}

// acctCategories are the bounce categories of PowerMTA, by our class; others are "other".
var acctCategories = map[string]string{
	"InvalidRecipient": "bad-mailbox", "BadDomain": "bad-domain", "InactiveMailbox": "inactive-mailbox", "QuotaIssues": "quota-issues",
	"SpamBlock": "spam-related", "SpamContent": "spam-related", "SpamRelated": "spam-related", "VirusRelated": "virus-related",
	"PolicyRelated": "policy-related", "InvalidSender": "invalid-sender", "RoutingErrors": "routing-errors", "ProtocolErrors": "protocol-errors",
}

// logPowerMTA prints the records that acct-files have, as CSV (RFC 4180) with a header line.
func (c *cli) logPowerMTA(ctx context.Context, q control.LogQuery, newest bool) error {
	w := csv.NewWriter(c.out)
	w.UseCRLF = true
	if err := w.Write(acctColumns); err != nil {
		return err
	}
	w.Flush()
	return c.logEach(ctx, q, newest, func(line []byte) error {
		r, err := accounting.Parse(line)
		if err != nil {
			return nil // no record: nothing that CSV could have of it
		}
		if _, known := acctTypes[r.Type]; !known {
			return nil
		}
		if err := w.Write(acctLine(r)); err != nil {
			return err
		}
		w.Flush() // a line that is followed has to appear
		return w.Error()
	})
}

// acctLine gives the columns of a record.
func acctLine(r *accounting.Record) []string {
	const layout = "2006-01-02 15:04:05-0700"
	kind := acctTypes[r.Type]
	queued := ""
	switch {
	case !r.Created.IsZero():
		queued = r.Created.Local().Format(layout)
	case r.Type == accounting.Reception:
		queued = r.Time.Local().Format(layout)
	}
	out := []string{kind[0], r.Time.Local().Format(layout), queued, string(r.Sender), string(r.Recipient), kind[1]}
	srcType, category, delivered := "smtp", "", "smtp"
	if r.Key != "" {
		srcType = "api"
	}
	if kind[0] == "b" || kind[0] == "t" {
		if category = acctCategories[r.Class]; category == "" {
			category = "other"
		}
	}
	source, destination, host, from, status, text := "", "", r.Peer.Name, "", r.Response.Enhanced.String(), ""
	if r.Response.Code != 0 {
		text = "smtp;" + strconv.Itoa(r.Response.Code) + " " + oneLine(r.Response.Text)
	}
	switch {
	case r.Type == accounting.Reception:
		delivered, from, host, status, text = "", strings.TrimSpace(r.Peer.Name+" "+address(r.Peer.Addr)), "", "", ""
	default:
		source, destination = address(r.Local.Addr()), address(r.Peer.Addr)
		if destination != "" {
			host += " (" + destination + ")"
		}
	}
	queue := r.Recipient.Domain()
	if r.EgressSource != "" {
		queue += "/" + r.EgressSource
	}
	return append(out, status, text, host, category, srcType, from, delivered, source, destination, strconv.FormatInt(r.Size, 10),
		r.EgressSource, r.EgressPool, r.Campaign, queue)
}

// address is "" where there is none.
func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
