package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"net/netip"
	"strconv"
	"strings"

	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
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

// logPowerMTA prints the records that acct-files have, as CSV with a header line. Lines end in \n, as those of PowerMTA
// on Linux do: scripts that split them have no \r in the last column.
func (c *cli) logPowerMTA(ctx context.Context, q api.LogQuery, newest bool) error {
	w := csv.NewWriter(c.out)
	write := func(line []string) error {
		if err := w.Write(line); err != nil {
			return err
		}
		w.Flush() // a line that is followed has to appear
		return w.Error()
	}
	if err := write(acctColumns); err != nil {
		return err
	}
	return c.logEach(ctx, q, newest, func(line []byte) error {
		r, err := accounting.Parse(line)
		if err != nil || acctTypes[r.Type][0] == "" {
			return nil // no record, or none that CSV could have
		}
		return write(acctLine(r))
	})
}

// acctLine gives the columns of a record.
func acctLine(r *accounting.Record) []string {
	const layout = "2006-01-02 15:04:05-0700"
	kind, peer := acctTypes[r.Type], address(r.Peer.Addr)
	queue := r.Recipient.Domain()
	if r.EgressSource != "" {
		queue += "/" + r.EgressSource
	}
	of := map[string]string{
		"type": kind[0], "timeLogged": r.Time.Local().Format(layout), "orig": string(r.Sender), "rcpt": string(r.Recipient),
		"dsnAction": kind[1], "dlvSize": strconv.FormatInt(r.Size, 10), "srcType": "smtp",
		"vmta": r.EgressSource, "vmtaPool": r.EgressPool, "jobId": r.Campaign, "queue": queue,
	}
	if r.Key != "" {
		of["srcType"] = "api"
	}
	if kind[0] == "b" || kind[0] == "t" {
		of["bounceCat"] = cmp.Or(acctCategories[r.Class], "other")
	}
	created := r.Created
	if r.Type == accounting.Reception {
		created = r.Time
		of["srcMta"] = strings.TrimSpace(r.Peer.Name + " " + peer)
	} else {
		of["dlvType"], of["dlvSourceIp"], of["dlvDestinationIp"] = "smtp", address(r.Local.Addr()), peer
		if of["dsnMta"] = r.Peer.Name; peer != "" {
			of["dsnMta"] += " (" + peer + ")"
		}
		of["dsnStatus"] = r.Response.Status().String()
		if r.Response.Code != 0 {
			of["dsnDiag"] = "smtp;" + oneLine(r.Response.String())
		}
	}
	if !created.IsZero() {
		of["timeQueued"] = created.Local().Format(layout)
	}
	line := make([]string, len(acctColumns))
	for i, name := range acctColumns {
		line[i] = of[name]
	}
	return line
}

// address is "" where there is none.
func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
