package bounce

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"example.org/mta/internal/reply"
)

// mutate gives a reply as another host, or another day, might have it: in other words around it, at
// another command, by another code, on other lines. What is said about us stays.
func mutate(r reply.Reply, rnd *rand.Rand, status bool) reply.Reply {
	pick := func(words ...string) string { return words[rnd.IntN(len(words))] }
	text := pick("", "", "<gone@example.com>: ", "gone@example.com... ", "mx1.example.com: ", "host mx1.example.com [192.0.2.7] said: ",
		"<gone@example.com>: Recipient address rejected: ", "Requested action not taken: mailbox unavailable; ", "User unknown. ") + r.Text +
		pick("", "", " (in reply to RCPT TO command)", " <no.such.user@example.com>", " [id 7f31]", "; user unknown", ". Mailbox full", ", the address does not exist",
			" account disabled", " over quota", "\nSee https://example.com/help")
	switch rnd.IntN(6) {
	case 0:
		text = strings.ToUpper(text)
	case 1:
		text = strings.ToLower(text)
	case 2:
		text = strings.ReplaceAll(text, " ", "  ")
	case 3:
		text = strings.ReplaceAll(text, " ", "\r\n")
	case 4:
		words := strings.Split(text, " ")
		at := rnd.IntN(len(words))
		text = strings.Join(words[:at], " ") + "\n" + strings.Join(words[at:], "\t")
	}
	m := r
	m.Text = strings.TrimLeft(text, "\n\t")
	if status {
		m.Code = []int{421, 450, 451, 452, 550, 551, 552, 553, 554}[rnd.IntN(9)]
		m.Command = pick("greeting", "MAIL", "RCPT", "DATA", "content", "")
		m.Enhanced = []reply.Enhanced{{}, {5, 0, 0}, {5, 1, 0}, {5, 1, 1}, {5, 1, 2}, {5, 1, 3}, {5, 1, 6}, {5, 1, 10}, {5, 2, 0}, {5, 2, 1}, {5, 2, 2}, {5, 5, 0}, {5, 7, 1}}[rnd.IntN(13)]
		if m.Enhanced[0] != 0 {
			m.Enhanced[0] = uint16(m.Code / 100)
		}
	}
	return m
}

// TestWhatIsAboutUsNeverPassesForTheRecipient: the mailbox would be suppressed, and be lost to the sender
// for the provider's opinion of an address. Neither words around it nor any status hide what a reply says
// of us; where only the status says it, no words around it do.
func TestWhatIsAboutUsNeverPassesForTheRecipient(t *testing.T) {
	rnd := rand.New(rand.NewPCG(16, 3))
	bySaying, byStatus := 0, 0
	for _, s := range samples(t) {
		if !s.class.AboutUs() {
			continue
		}
		bare := s.Reply
		bare.Code, bare.Enhanced, bare.Command = 550, reply.Enhanced{}, "RCPT"
		said := Of(bare).AboutUs()
		if said {
			bySaying++
		} else {
			byStatus++
			continue
		}
		for range 300 {
			if m := mutate(s.Reply, rnd, true); Of(m).AboutRecipient() {
				t.Errorf("%v, from %s, passes for %v: %s: %s", s.class, s.provider, Of(m), m.Command, strings.ReplaceAll(m.String(), "\n", " / "))
				break
			}
		}
	}
	if bySaying < 50 || byStatus > bySaying/5 {
		t.Errorf("%d replies say that they are about us, and %d only by their status", bySaying, byStatus)
	}
}

// TestAnAddressIsNoWord: what stands in an address decides nothing, in any form that hosts quote it.
func TestAnAddressIsNoWord(t *testing.T) {
	for _, local := range []string{"spamhaus.org", "blacklist", "dmarc", "greylist", "user.unknown", "mailbox-full", "policy", "virus", "rate-limit"} {
		for _, form := range []string{"<%s@example.com>: no", "%s@example.com no", "(%s@example.com) no", "no: \"%s@example.com\"", "no [%s@example.com], no", "<<%s@example.com>> no", "rcpt=%s@example.com; no"} {
			text := fmt.Sprintf(form, local)
			for _, code := range []string{"550 ", "450 4.2.0 "} {
				want := Of(withCommand(code+fmt.Sprintf(form, "ann"), "RCPT"))
				if got := Of(withCommand(code+text, "RCPT")); got != want {
					t.Errorf("%s%s: %v, want %v", code, text, got, want)
				}
			}
		}
	}
}

func withCommand(line, command string) reply.Reply {
	r := reply.Parse(line)
	r.Command = command
	return r
}
