package demo

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// letter is one message of the stream.
type letter struct {
	number     int
	sender     string
	recipients []recipient
}

type recipient struct {
	address  string
	provider int // index into the world's providers
}

// id is the value of X-Mta-Test-Id: how the letter is known again.
func (l *letter) id() string { return fmt.Sprintf("demo-%d", l.number) }

// writer makes letters; the same seed gives the same ones.
type writer struct {
	providers []provider
	seed      uint64
	shares    []int // the sum of shares up to and with each provider
}

func newWriter(ps []provider, seed uint64) *writer {
	w := &writer{providers: ps, seed: seed}
	sum := 0
	for _, p := range ps {
		sum += p.share
		w.shares = append(w.shares, sum)
	}
	return w
}

var senders = []string{"billing", "news", "hello", "shop", "alerts"}

// letter makes number n: to one person mostly, sometimes to a few, at one provider or several.
func (w *writer) letter(n int) letter {
	rng := rand.New(rand.NewPCG(w.seed, uint64(n)))
	l := letter{number: n, sender: senders[rng.IntN(len(senders))] + "@" + home().domain}
	count, together := 1, true
	if draw := rng.IntN(100); draw < 6 {
		count = 2 + rng.IntN(4)
		together = draw < 4
	}
	p := w.draw(rng)
	for i := range count {
		if i > 0 && !together {
			p = w.draw(rng)
		}
		// The letter's number makes each address one of a kind, so that greylisting meets all.
		l.recipients = append(l.recipients, recipient{
			address:  fmt.Sprintf("%s.%d.%d@%s", names[rng.IntN(len(names))], n, i, w.providers[p].domain),
			provider: p,
		})
	}
	return l
}

func (w *writer) draw(rng *rand.Rand) int {
	x := rng.IntN(w.shares[len(w.shares)-1])
	for i, upTo := range w.shares {
		if x < upTo {
			return i
		}
	}
	panic("unreachable: the draw is below the sum of all shares")
}

var names = []string{"ada", "alan", "barbara", "dennis", "edsger", "frances", "grace", "jon", "ken", "margaret", "paul",
	"radia", "ray", "wietse"}

const paragraph = "The quick brown fox jumps over the lazy dog, and comes back again later.\r\n"

// content gives the octets to send after DATA, without the final dot: 1 to 8 KB mostly, now and
// then large. No line of it begins with a dot.
func (w *writer) content(l *letter, now time.Time) string {
	rng := rand.New(rand.NewPCG(w.seed^0xc0ffee, uint64(l.number)))
	lines := 10 + rng.IntN(90)
	if rng.IntN(500) == 0 {
		lines = 5000 // 400 KB: goes to a file of its own
	}
	var b strings.Builder
	fmt.Fprintf(&b, "From: ACME <%s>\r\nTo: <%s>\r\nSubject: number %d\r\nDate: %s\r\n", l.sender,
		l.recipients[0].address, l.number, now.Format(time.RFC1123Z))
	fmt.Fprintf(&b, "Message-ID: <%s@%s>\r\nX-Mta-Test-Id: %s\r\n\r\n", l.id(), home().domain, l.id())
	for range lines {
		b.WriteString(paragraph)
	}
	return b.String()
}
