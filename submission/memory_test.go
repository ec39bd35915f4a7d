package submission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/mta/submission/intake"
)

// A tenant or client whose messages come slowly leaves memory to the next one.
func TestMemoryOfUnfinishedMessagesIsShared(t *testing.T) {
	memory := intake.NewMemory(16 << 20)
	withRelay(t, Config{Intake: intake.Config{Memory: memory, Buffered: 256 << 10}}, func(t *testing.T, r *relay) {
		line := strings.Repeat("x", 998) + "\r\n"
		for range 100 {
			p := r.greeted()
			p.send("MAIL FROM:<a@example.org>\r\n")
			if codes(p.got()) != "250" {
				continue
			}
			p.cmd("RCPT TO:<b@example.net>", "250")
			p.cmd("DATA", "354")
			p.send("Subject: x\r\n\r\n" + strings.Repeat(line, 200))
		}
		if used := memory.Used(); used < 11<<20 {
			t.Errorf("one that is alone has %d octets of %d", used, 16<<20)
		}
		for i := range 8 {
			p := r.greetedFrom(fmt.Sprintf("192.0.2.%d", 2+i))
			if got := codes(p.data(strings.Repeat(line, 200))); got != "250" {
				t.Errorf("another client: %s", got)
			}
		}
	})
}

// Messages that are coming in share a budget; whom it can't take hears 452 and may come again, and
// what a message held comes back however it ends.
func TestMemoryOfUnfinishedMessages(t *testing.T) {
	memory := intake.NewMemory(1 << 20)
	withRelay(t, Config{Intake: intake.Config{Memory: memory, Buffered: 256 << 10}}, func(t *testing.T, r *relay) {
		clients := 0
		greeted := func() *peer { // each is another client
			clients++
			return r.greetedFrom(fmt.Sprintf("192.0.2.%d", clients))
		}
		line := strings.Repeat("x", 998) + "\r\n"
		var open []*peer
		for range 3 { // of 300 KB each
			p := greeted()
			p.envelope()
			p.cmd("DATA", "354")
			p.send("Subject: x\r\n\r\n" + strings.Repeat(line, 200))
			open = append(open, p)
		}
		if used := memory.Used(); used < 600_000 || used > 1<<20 {
			t.Errorf("%d octets are accounted for", used)
		}
		loser := greeted()
		loser.envelope()
		loser.cmd("DATA", "354")
		loser.send("Subject: x\r\n\r\n" + strings.Repeat(line, 400) + ".\r\n")
		loser.expect("452 4.3.1 too many messages are coming in, try again later")
		header := greeted() // a header section is kept whole
		header.envelope()
		header.cmd("DATA", "354")
		header.send(strings.Repeat("X: "+line, 500) + "\r\n.\r\n")
		header.expect("452 4.3.1")
		for range 4 {
			p := greeted()
			p.envelope()
			p.cmd("DATA", "354")
			p.send("Subject: x\r\n\r\n")
			open = append(open, p)
		}
		greeted().cmd("MAIL FROM:<a@example.org>", "452 4.3.1") // said before content comes
		for i, p := range slices.Backward(open) {
			switch i {
			case 0:
				p.conn.Close()
			case 1: // a large message goes to a file, and gives memory back
				before := memory.Used()
				p.send(strings.Repeat(line, 100))
				if used := memory.Used(); used >= before {
					t.Errorf("%d octets, %d when the content was still in memory", used, before)
				}
				fallthrough
			default:
				p.send(".\r\n")
				p.expect("250")
			}
		}
		p := greeted()
		p.chunk("hi\r\n")
		if used := memory.Used(); used != 0 {
			t.Errorf("%d octets are never given back", used)
		}
	})
}
