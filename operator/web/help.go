package web

import "example.org/mta/internal/envelope"

// helpPage has the words of the console.
type helpPage struct {
	Words  []term
	States []term
}

// term is a word and its meaning.
type term struct{ Name, Meaning string }

// words are those that pages use, as the manual does.
var words = []term{
	{"message, recipient", "A message is accepted once. Each of its recipients has a state, and leaves the queue when it is delivered, bounced, expired or removed."},
	{"tenant, campaign", "The customer or application whose mail it is; a finer label that the mail itself has."},
	{"site, host, provider", "The hosts that serve a domain, with one budget; one address of a mail exchanger; several sites with one budget."},
	{"source, pool", "A local address from which mail leaves; the sources that mail of some tenants may take."},
	{"suspend, resume", "Nothing is sent to a site or host for a time. Operators do it, and the relay itself on account of replies."},
	{"pause", "Nothing is sent of a tenant, pool, source or domain, or nothing at all, until it is resumed or for a time."},
	{"hold, release", "Recipients that fit a filter are not tried until they are released."},
	{"retry", "Recipients are tried now, whatever was the time of their next attempt."},
	{"bounce, remove", "Recipients are given up: with a report to the sender, or without."},
	{"warm-up", "A new source sends little on its first days and more on each that goes well, by the stages of its plan."},
	{"suppression", "Addresses that no mail is sent to, for one tenant or for everybody."},
	{"class", "What a refusal is about, such as InvalidRecipient or RateLimited, whatever words a host uses."},
	{"dry run", "Each action is counted before it asks for a confirmation. If the count has changed when it is confirmed, it asks again."},
}

func help(*request) (any, error) {
	p := helpPage{Words: words}
	for _, s := range envelope.States {
		p.States = append(p.States, term{string(s.State), s.Meaning})
	}
	return p, nil
}
