package dispatch

import (
	"testing"

	"example.org/mta/bounce"
	"example.org/mta/internal/reply"
)

// Only a remote host's own answer to RCPT can say something of a mailbox.
func TestT3_WhatFeedsTheList(t *testing.T) {
	r := func(code int, status [3]uint16, command string) reply.Reply {
		return reply.Reply{Code: code, Enhanced: status, Command: command, Text: "x"}
	}
	for _, c := range []struct {
		r    reply.Reply
		want bounce.Class // None: nothing
	}{
		{r(550, [3]uint16{5, 1, 1}, "RCPT"), bounce.InvalidRecipient},
		{r(551, [3]uint16{5, 1, 6}, "RCPT"), bounce.InvalidRecipient},
		{r(550, [3]uint16{5, 2, 1}, "RCPT"), bounce.InactiveMailbox},
		{r(552, [3]uint16{5, 2, 2}, "RCPT"), bounce.QuotaIssues},
		{r(452, [3]uint16{4, 2, 2}, "RCPT"), bounce.QuotaIssues},
		{r(552, [3]uint16{5, 2, 2}, "content"), 0},
		{replied("RCPT", "450 4.1.1 no such user here"), 0},
		{r(550, [3]uint16{5, 7, 1}, "RCPT"), 0},
		{r(550, [3]uint16{}, "RCPT"), 0},
		{r(450, [3]uint16{4, 1, 1}, "RCPT"), 0},
		{r(550, [3]uint16{5, 1, 1}, "content"), 0},
		{r(550, [3]uint16{5, 1, 1}, "MAIL"), 0},
		{reply.Local(550, reply.Enhanced{5, 1, 1}, "RCPT", "x"), 0},
		{r(250, [3]uint16{2, 1, 5}, "RCPT"), 0},
		// Such hosts know nothing of the address, whatever their status.
		{replied("RCPT", "550 5.1.1 Client host [192.0.2.5] blocked using zen.spamhaus.org"), 0},
		{replied("RCPT", "550 5.1.1 your IP has a bad reputation"), 0},
	} {
		if got, ok := aboutRecipient(&c.r, bounce.Of(c.r)); ok != (c.want != 0) || ok && got != c.want {
			t.Errorf("%v: feeds %v (%v), want %v", c.r, ok, got, c.want)
		}
	}
}
