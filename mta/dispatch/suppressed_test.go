package dispatch

import (
	"testing"

	"example.org/mta/internal/reply"
)

// Only a remote host's answer to RCPT with one of the listed codes says that there is no mailbox.
func TestT3_WhatFeedsTheList(t *testing.T) {
	statuses := []string{"5.1.1", "5.1.6"}
	r := func(code int, status [3]uint16, command string) reply.Reply {
		return reply.Reply{Code: code, Enhanced: status, Command: command, Text: "x"}
	}
	for _, c := range []struct {
		r    reply.Reply
		want bool
	}{
		{r(550, [3]uint16{5, 1, 1}, "RCPT"), true},
		{r(551, [3]uint16{5, 1, 6}, "RCPT"), true},
		{r(550, [3]uint16{5, 2, 1}, "RCPT"), false},
		{r(550, [3]uint16{5, 7, 1}, "RCPT"), false},
		{r(550, [3]uint16{}, "RCPT"), false},
		{r(450, [3]uint16{4, 1, 1}, "RCPT"), false},
		{r(550, [3]uint16{5, 1, 1}, "content"), false},
		{r(550, [3]uint16{5, 1, 1}, "MAIL"), false},
		{reply.Local(550, reply.Enhanced{5, 1, 1}, "RCPT", "x"), false},
		{r(250, [3]uint16{2, 1, 5}, "RCPT"), false},
		// Such hosts know nothing of the address, whatever their status.
		{replied("RCPT", "550 5.1.1 Client host [192.0.2.5] blocked using zen.spamhaus.org"), false},
		{replied("RCPT", "550 5.1.1 your IP has a bad reputation"), false},
	} {
		if got := unknownMailbox(&c.r, statuses); got != c.want {
			t.Errorf("%v: feeds %v, want %v", c.r, got, c.want)
		}
	}
}
