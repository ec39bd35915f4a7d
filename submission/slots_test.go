package submission

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Commands that carry nothing end the session, whichever they are; a message gives the client all
// of them back.
func TestIdleCommandsAreBounded(t *testing.T) {
	for _, command := range []string{"NOOP", "RSET", "VRFY x", "EHLO again", "HELO again"} {
		withRelay(t, Config{Limits: Limits{IdleCommands: 5}}, func(t *testing.T, r *relay) {
			p := r.greeted()
			for range 3 {
				p.cmd(command, "25")
			}
			if got := codes(p.data("hi\r\n")); got != "250" {
				t.Fatal(got)
			}
			for range 4 {
				p.cmd(command, "25")
			}
			p.send(command + "\r\n" + command + "\r\n")
			if got := p.got(); !strings.HasSuffix(got, "421 4.7.0 too many commands without a message, closing connection\r\n") {
				t.Errorf("%s: %q", command, got)
			}
			p.mustBeClosed()
		})
	}
}

// Strangers never get the last quarter of a listener's connections.
func TestSlotsAreKeptForRelayClients(t *testing.T) {
	withRelay(t, Config{Limits: Limits{Connections: 20}}, func(t *testing.T, r *relay) {
		var strangers []*peer
		for i := range 20 {
			p := r.dial(fmt.Sprintf("198.51.100.%d", i))
			if i < 15 {
				p.expect("220")
				strangers = append(strangers, p)
				continue
			}
			p.expect("421 4.3.2 too many connections")
			p.mustBeClosed()
		}
		for range 5 {
			p := r.greeted()
			if got := codes(p.data("hi\r\n")); got != "250" {
				t.Error(got)
			}
		}
		r.dial("192.0.2.9").expect("421 4.3.2 too many connections") // all are taken now
		strangers[0].cmd("QUIT", "221")
		r.dial("198.51.100.77").expect("220")
	})
}

// While slots are scarce, who has sent no mail must hurry, and those that were there before, too;
// a client that sends may be idle as ever.
func TestIdleClientsYieldScarceSlots(t *testing.T) {
	withRelay(t, Config{Limits: Limits{Connections: 16}}, func(t *testing.T, r *relay) {
		sender := r.greeted()
		sender.data("hi\r\n")
		early := r.greeted()
		begun := r.dial("198.51.100.1")
		begun.expect("220")
		begun.cmd("EHLO x", "250")
		begun.cmd("MAIL FROM:<>", "250") // MAIL is taken from anybody, so it proves nothing
		time.Sleep(2 * time.Minute)
		early.mustBeOpen()
		begun.mustBeOpen()
		var busy []*peer
		for i := range 9 { // 12 of 16 are taken
			p := r.dial(fmt.Sprintf("198.51.100.%d", 2+i))
			p.expect("220")
			p.cmd("EHLO x", "250")
			busy = append(busy, p)
		}
		time.Sleep(11 * time.Second)
		for _, p := range append(busy, early, begun) {
			if got := p.got(); !strings.HasPrefix(got, "421 4.3.2 connections are scarce") {
				t.Errorf("an idle client hears %q", got)
			}
			p.mustBeClosed()
		}
		sender.cmd("NOOP", "250")
		late := r.greeted()
		time.Sleep(2 * time.Minute)
		late.mustBeOpen() // there is room again
	})
}

// A client that has had a recipient accepted is not hurried, however long it has been there and however
// scarce slots are.
func TestSendersAreNotHurried(t *testing.T) {
	withRelay(t, Config{Limits: Limits{Connections: 4}}, func(t *testing.T, r *relay) {
		sender := r.greeted()
		for range 3 { // all senders, so that slots stay scarce
			r.greeted().data("hi\r\n")
		}
		for range 8 {
			if got := codes(sender.data("hi\r\n")); got != "250" {
				t.Fatal(got)
			}
			time.Sleep(crowdedIdle + time.Second)
		}
		sender.cmd("NOOP", "250")
	})
}

// A word now and then doesn't help.
func TestScarceSlotsAreNotKeptByTrickling(t *testing.T) {
	withRelay(t, Config{Limits: Limits{Connections: 4}}, func(t *testing.T, r *relay) {
		for range 2 {
			r.greeted().data("hi\r\n")
		}
		p := r.greeted()
		for range 7 {
			time.Sleep(9 * time.Second)
			if p.closed() {
				break
			}
			p.send("NOOP\r\n")
		}
		p.mustBeClosed()
		if got := p.got(); !strings.Contains(got, "421 4.3.2 connections are scarce") {
			t.Errorf("%q", got)
		}
	})
}
