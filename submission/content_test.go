package submission

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

// What other hosts may take for the end of DATA must neither end a message here nor get through
// (SMTP smuggling), and what RFC 5321 calls the end must be it.
func TestSmuggling(t *testing.T) {
	inner := "MAIL FROM:<admin@example.org>\r\nRCPT TO:<victim@example.net>\r\nDATA\r\nFrom: admin\r\n\r\nsmuggled\r\n.\r\n"
	for _, end := range []string{
		"\n.\n", "\n.\r\n", "\r\n.\n", "\r.\r", "\r.\n", "\n.\r", "\r\n.\r", "\r.\r\n", "\r\n.\r\r\n", "\n\r.\r\n",
		"\r\n\x00.\r\n", "\r\n.\x00\r\n", "\n..\r\n", "\r\n.\n.\n", "\r\n\n.\r\n",
	} {
		t.Run(fmt.Sprintf("%q", end), func(t *testing.T) {
			withRelay(t, Config{}, func(t *testing.T, r *relay) {
				p := r.greeted()
				p.envelope()
				p.cmd("DATA", "354")
				p.send("Subject: x\r\n\r\nouter" + end + inner)
				got := p.expect("550 5.6.")
				if strings.Contains(end, "\x00") != strings.Contains(got, "NUL") {
					t.Errorf("refused with %q", got)
				}
				if strings.Contains(end, "\x00") {
					p.cmd("NOOP", "250")
				} else {
					p.mustBeClosed() // what follows could be meant as commands
				}
				r.store.none(t)
			})
			withRelay(t, Config{BareNewlines: intake.NormaliseBareNewlines}, func(t *testing.T, r *relay) {
				p := r.greeted()
				p.envelope()
				p.cmd("DATA", "354")
				p.send("Subject: x\r\n\r\nouter" + end + inner)
				got := p.got()
				if strings.Contains(end, "\x00") {
					r.store.none(t)
					return
				}
				if codes(got) != "250" || len(r.store.all(t)) != 1 {
					t.Fatalf("got %q, %d messages", got, len(r.store.all(t)))
				}
				if m := r.store.one(t); m.Sender != "a@example.org" || hasBareNewline(m.content) || !strings.Contains(m.content, "smuggled") {
					t.Errorf("stored %q", m.content)
				}
			})
			withRelay(t, Config{}, func(t *testing.T, r *relay) { // by BDAT too
				p := r.greeted()
				if got := p.chunk("Subject: x\r\n\r\nouter" + end + "MAIL FROM:<admin@example.org>\r\n"); !strings.HasPrefix(got, "550 5.6.") {
					t.Errorf("got %q", got)
				}
				r.store.none(t)
			})
		})
	}
}

// CR CRLF . CRLF has the end of DATA in it. The library's reader does not see it and takes the
// commands behind it for content.
func TestEndOfDataAfterBareCR(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		p.send("text\r\r\n.\r\nNOOP\r\n")
		if got := codes(p.got()); got != "550" {
			t.Errorf("codes %q", got)
		}
		p.mustBeClosed()
	})
}

func TestBareNewlinesAreNormalised(t *testing.T) {
	withRelay(t, Config{BareNewlines: intake.NormaliseBareNewlines}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.data("Subject: x\nDate: y\rMessage-ID: z\r\r\n\nbody\n..dots\n.gone\r\n")
		if got, want := r.store.one(t).body(), "Subject: x\r\nDate: y\r\nMessage-ID: z\r\n\r\n\r\nbody\r\n.dots\r\ngone\r\n"; got != want {
			t.Errorf("stored\n%q, want\n%q", got, want)
		}
	})
}

// Content arrives byte for byte, however it is cut up on its way.
func TestContentArrivesByteForByte(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, body := range map[string]string{
		"empty":      "",
		"blank":      "\r\n",
		"dots":       "\r\n.\r\n..\r\n.x\r\n. \r\nx.\r\n...\r\n",
		"no header":  "hello\r\n\r\nworld\r\n",
		"header":     "Subject: x\r\n",
		"folded":     "Subject: x\r\n y\r\n\tz\r\n\r\nbody\r\n",
		"8-bit":      "Subject: x\r\n\r\n\xff\xfe\x80\r\n",
		"utf-8":      "Subject: Grüße\r\n\r\nGrüße\r\n",
		"long":       "\r\n" + strings.Repeat("0123456789", 6000) + "\r\n",
		"megabyte":   "\r\n" + strings.Repeat(strings.Repeat(".", 70)+"\r\n", 15_000),
		"no newline": "Subject: x\r\n\r\nlast line without end",
	} {
		for _, cut := range []int{0, 1, 2, 7, 1000} {
			if cut > 0 && cut < 1000 && len(body) > 1000 {
				continue
			}
			t.Run(fmt.Sprintf("%s by %d", name, cut), func(t *testing.T) {
				withRelay(t, Config{}, func(t *testing.T, r *relay) {
					p := r.greeted()
					want := body
					if name != "no newline" {
						p.envelope()
						p.cmd("DATA", "354")
						sendInPieces(p, stuff(body)+".\r\n", cut, rng)
						p.expect("250")
					} else {
						want += "\r\n"
					}
					p.envelope()
					sendInPieces(p, fmt.Sprintf("BDAT %d\r\n%sBDAT 0\r\nBDAT %d LAST\r\n%s", len(body)/2, body[:len(body)/2], len(body)-len(body)/2, body[len(body)/2:]), cut, rng)
					if got := codes(p.got()); got != "250 250 250" {
						t.Fatalf("codes %s", got)
					}
					if name == "no header" || name == "empty" {
						want = "\r\n" + want
					}
					for _, m := range r.store.all(t) {
						if m.body() != want {
							t.Errorf("stored %.200q, want %.200q", m.body(), want)
						}
						if m.Size != int64(len(m.content)) {
							t.Errorf("size %d, content %d", m.Size, len(m.content))
						}
					}
				})
			})
		}
	}
}

// stuff makes content ready for DATA (RFC 5321, 4.5.2).
func stuff(s string) string {
	s = strings.ReplaceAll("\r\n"+s, "\r\n.", "\r\n..")
	return s[2:]
}

// sendInPieces writes s in pieces of at most n octets; 0 is all at once.
func sendInPieces(p *peer, s string, n int, rng *rand.Rand) {
	for n > 0 && len(s) > n {
		k := 1 + rng.IntN(n)
		io.WriteString(p.conn, s[:k])
		s = s[k:]
	}
	p.send(s)
}

// The pieces in which content comes must not matter to the reader of dots, to the last octet.
func TestDotsInEveryPiece(t *testing.T) {
	alphabet := []string{"\r", "\n", ".", "x", "\r\n", "\r\n."}
	for _, lenient := range []bool{false, true} {
		for n := range 6 * 6 * 6 * 6 * 6 {
			s := ""
			for k, v := 0, n; k < 5; k, v = k+1, v/6 {
				s += alphabet[v%6]
			}
			s += "\r\n.\r\nrest"
			wantText, wantRest := readDots(s, lenient, len(s))
			for size := 1; size < 4; size++ {
				if text, rest := readDots(s, lenient, size); text != wantText || rest != wantRest {
					t.Fatalf("%q in pieces of %d: %q and %q, at once %q and %q", s, size, text, rest, wantText, wantRest)
				}
			}
			if !lenient {
				text, rest := referenceDots(s)
				if wantText != text || wantRest != rest {
					t.Fatalf("%q: %q and %q, reference %q and %q", s, wantText, wantRest, text, rest)
				}
			}
		}
	}
}

// readDots runs dots over s, of which size more octets arrive whenever it asks for more.
func readDots(s string, lenient bool, size int) (text, rest string) {
	d := dots{lenient: lenient}
	var out strings.Builder
	arrived, r := 0, 0
	for {
		run, used, end := d.next([]byte(s[r:arrived]))
		out.Write(run)
		r += used
		if end {
			return out.String(), s[r:]
		}
		if used == 0 {
			if arrived == len(s) {
				return out.String(), "no end"
			}
			arrived = min(arrived+size, len(s))
		}
	}
}

// referenceDots is RFC 5321, 4.5.2 by the letter.
func referenceDots(s string) (text, rest string) {
	text, rest, _ = strings.Cut("\r\n"+s, "\r\n.\r\n")
	return strings.ReplaceAll(text+"\r\n", "\r\n.", "\r\n")[2:], rest
}

func TestContentThatIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, mail, content, want string
	}{
		{"nul", "", "\r\na\x00b\r\n", "550 5.6.0 message has a NUL"},
		{"nul in header", "", "Subject: \x00\r\n\r\n", "550 5.6.0 message has a NUL"},
		{"header utf-8", "", "Subject: ä\r\n\r\nbody\r\n", "250"},
		{"body not utf-8", "", "Subject: x\r\n\r\n\xe4\r\n", "250"},
		{"body not utf-8, SMTPUTF8", " SMTPUTF8", "Subject: x\r\n\r\n\xe4\r\n", "250"},
	} {
		t.Run(c.name, func(t *testing.T) {
			withRelay(t, Config{}, func(t *testing.T, r *relay) {
				p := r.greeted()
				p.cmd("MAIL FROM:<a@example.org>"+c.mail, "250")
				p.cmd("RCPT TO:<b@example.net>", "250")
				p.cmd("DATA", "354")
				p.send(c.content + ".\r\n")
				p.expect(c.want)
				if strings.HasPrefix(c.want, "5") {
					r.store.none(t)
					e := r.events.rejected[0]
					if e.Reply.Command != "content" || e.Sender != "a@example.org" || len(e.Recipients) != 1 || e.Reply.Code != 550 {
						t.Errorf("rejection %+v", e)
					}
				}
			})
		})
	}
}

// The body type is what is there, not what was declared.
func TestBodyType(t *testing.T) {
	for _, c := range []struct {
		mail, content string
		want          envelope.BodyType
	}{
		{"", "\r\nx\r\n", envelope.Body7Bit},
		{"", "\r\n\xff\r\n", envelope.Body8BitMIME},
		{" BODY=8BITMIME", "\r\nx\r\n", envelope.Body7Bit},
		{" BODY=8BITMIME", "\r\n\xff\r\n", envelope.Body8BitMIME},
		{" BODY=7BIT", "\r\n\xff\r\n", envelope.Body8BitMIME},
	} {
		withRelay(t, Config{}, func(t *testing.T, r *relay) {
			p := r.greeted()
			p.cmd("MAIL FROM:<a@example.org>"+c.mail, "250")
			p.cmd("RCPT TO:<b@example.net>", "250")
			p.cmd("DATA", "354")
			p.send(c.content + ".\r\n")
			p.expect("250")
			if m := r.store.one(t); m.Body != c.want {
				t.Errorf("%q %q: %s", c.mail, c.content, m.Body)
			}
		})
	}
}

// Our own trouble is a 4xx, with the code of its class and without a word of where it was.
func TestStoreTrouble(t *testing.T) {
	for name, c := range map[string]struct {
		write, commit error
		want          string
	}{
		"disk full at write":  {fmt.Errorf("appending: %w", fullDisk{}), nil, "452 4.3.1 insufficient storage, try again later\r\n"},
		"disk full at commit": {nil, fmt.Errorf("appending: %w", fullDisk{}), "452 4.3.1 insufficient storage, try again later\r\n"},
		"error at write":      {errDisk, nil, "451 4.3.0 message could not be stored, try again later\r\n"},
		"error at commit":     {nil, errors.Join(errDisk), "451 4.3.0 message could not be stored, try again later\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			withRelay(t, Config{}, func(t *testing.T, r *relay) {
				r.store.writeErr, r.store.commitErr = c.write, c.commit
				p := r.greeted()
				if got := p.data("hi\r\n"); got != c.want {
					t.Errorf("by DATA: %q", got)
				}
				if got := p.chunk("hi\r\n"); got != c.want {
					t.Errorf("by BDAT: %q", got)
				}
				r.store.none(t)
				if len(r.events.received) != 0 || len(r.events.rejected) != 2 {
					t.Errorf("%d received, %d rejected", len(r.events.received), len(r.events.rejected))
				}
				r.store.writeErr, r.store.commitErr = nil, nil
				if got := codes(p.data("hi\r\n")); got != "250" {
					t.Errorf("afterwards: %s", got)
				}
			})
		})
	}
}

// A store that takes nothing is told of before a client sends its content.
func TestStoreTroubleKnownAtMail(t *testing.T) {
	for _, c := range []struct {
		trouble error
		want    string
	}{
		{fullDisk{}, "452 4.3.1 insufficient storage, try again later\r\n"},
		{errDisk, "451 4.3.0 message could not be stored, try again later\r\n"},
	} {
		trouble := c.trouble
		withRelay(t, Config{Intake: intake.Config{Ready: func(intake.Owner, int64) error { return trouble }}}, func(t *testing.T, r *relay) {
			p := r.greeted()
			p.cmd("MAIL FROM:<a@example.org>", c.want)
			p.cmd("RCPT TO:<b@example.net>", "503")
			if e := r.events.rejected; len(e) == 0 || e[0].Reply.Command != "MAIL" || e[0].Reply.Code/100 != 4 {
				t.Errorf("rejected %+v", r.events.rejected)
			}
			trouble = nil
			if got := codes(p.data("hi\r\n")); got != "250" {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
}

func TestResetWithinChunks(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		for _, end := range []string{"RSET", "EHLO again"} {
			p.envelope()
			p.send("BDAT 6\r\nhalf\r\n" + end + "\r\n")
			if got := codes(p.got()); got != "250 250" {
				t.Errorf("codes %s", got)
			}
		}
		p.envelope()
		p.send("BDAT 0\r\nRSET\r\n")
		if got := codes(p.got()); got != "250 250" {
			t.Errorf("codes %s", got)
		}
		if got := codes(p.chunk("whole\r\n")); got != "250" {
			t.Errorf("codes %s", got)
		}
		p.envelope()
		p.send("BDAT 6\r\nhalf\r\nQUIT\r\n")
		p.mustBeClosed()
		if m := r.store.one(t); !strings.HasSuffix(m.content, "\r\n\r\nwhole\r\n") {
			t.Errorf("stored %q", m.content)
		}
	})
}

// A chunk for no recipient is dropped and not taken for commands.
func TestChunkWithoutRecipients(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.send("BDAT 6 LAST\r\nRSET\r\nNOOP\r\n")
		if got := codes(p.got()); got != "503 250" {
			t.Errorf("without MAIL: %s", got)
		}
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p.send("BDAT 6 LAST\r\nRSET\r\nRCPT TO:<b@example.net>\r\n")
		if got := codes(p.got()); got != "554 250" {
			t.Errorf("without RCPT: %s", got)
		}
		p.send("BDAT 8 LAST\r\n\r\nx\r\nx\r\n")
		p.expect("250")
		r.store.one(t)
	})
}

func hasBareNewline(s string) bool {
	s = strings.ReplaceAll(s, "\r\n", "")
	return strings.ContainsAny(s, "\r\n")
}
