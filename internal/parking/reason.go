package parking

import (
	"fmt"
	"strings"
)

// Reason is a class of what keeps a recipient in the queue. Each recipient has one at any time: deferred mail that of
// its last reply, which its Line carries; all other that of its state, its Key, and what delivery knows of its site.
type Reason uint8

// The reasons. Their words are on disk, in metrics and in filters, so they stay.
const (
	Unclassed   Reason = iota // no line says: deferred before there were reasons
	Turn                      // nothing but its turn
	DNS                       // a name server's answer
	Unreachable               // a host that answers
	Greylisted                // a host that has asked to come again
	Rate                      // a host's limit on this relay
	Blocked                   // a host's judgement of this relay, or its mail
	Mailbox                   // space, or quiet, in the mailbox
	Refused                   // a host's other temporary refusal
	TLS                       // a secure connection, as a policy demands
	Limit                     // a limit of this relay
	Warmup                    // tokens of a warm-up
	Suspended                 // the end of an operator's suspension
	Paused                    // the end of an operator's pause
	Scheduled                 // the time that it was submitted for
	Held                      // an operator's release
	Fault                     // the end of a fault of this relay: a source or a signature is missing
	Report                    // the report to its sender
	Unreadable                // its record, which is damaged
	Closed                    // the opening of a window
	Paced                     // the pace of its campaign
	reasons
)

// reasonWords has for each reason its word, and a phrase for "134,000 wait for ...".
var reasonWords = [reasons][2]string{
	Unclassed:   {"unclassed", "their next attempts"},
	Turn:        {"turn", "their turn"},
	DNS:         {"dns", "the DNS"},
	Unreachable: {"unreachable", "unreachable hosts"},
	Greylisted:  {"greylisted", "greylisting"},
	Rate:        {"rate", "hosts' rate limits"},
	Blocked:     {"blocked", "blocks by hosts"},
	Mailbox:     {"mailbox", "full mailboxes"},
	Refused:     {"refused", "other refusals"},
	TLS:         {"tls", "missing TLS"},
	Limit:       {"limit", "own limits"},
	Warmup:      {"warm-up", "warm-ups"},
	Suspended:   {"suspended", "suspensions"},
	Paused:      {"pause", "pauses"},
	Scheduled:   {"scheduled", "their time"},
	Held:        {"held", "a release"},
	Fault:       {"fault", "own faults"},
	Report:      {"report", "reports"},
	Unreadable:  {"unreadable", "damaged records"},
	Closed:      {"hours", "sending hours"},
	Paced:       {"pace", "campaigns' paces"},
}

// Reasons are the words of all reasons.
func Reasons() (words []string) {
	for _, w := range reasonWords {
		words = append(words, w[0])
	}
	return words
}

// String gives the word.
func (r Reason) String() string { return reasonWords[r][0] }

// Phrase gives words that follow "waits for".
func (r Reason) Phrase() string { return reasonWords[r][1] }

// MarshalText gives the word.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the word.
func (r *Reason) UnmarshalText(text []byte) error {
	for i, w := range reasonWords {
		if w[0] == string(text) {
			*r = Reason(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not a reason (want one of %s)", text, strings.Join(Reasons(), ", "))
}

// Text gives what is on disk of a line: its key, after the word of its reason where it has one and waits for a site.
func (l Line) Text() string {
	if l.Reason == Unclassed || l.Kind != Site {
		return l.Key.String()
	}
	return l.Reason.String() + reasonMark + l.Name
}

// reasonMark ends the word of a reason. No site's name has a colon.
const reasonMark = ": "

// ParseLine is the inverse of Text. The reason of a later version, which has no word here, is not known.
func ParseLine(text string) Line {
	word, name, marked := strings.Cut(text, reasonMark)
	if key := Parse(text); !marked || key.Kind != Site {
		return Line{Key: key}
	}
	l := Line{Key: Key{Name: name}}
	_ = l.Reason.UnmarshalText([]byte(word)) // it stays Unclassed
	return l
}
