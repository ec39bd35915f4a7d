package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/mta/lab/sink"
)

// account is the end of the sum: where every recipient of every accepted letter is. It is made
// from three records that don't know of each other: what we submitted (the ledger), what the
// providers took (their recorders), and what the relay says of itself.
type account struct {
	letters    int
	byHTTP     int64 // of them
	recipients int64
	delivered  int64 // a provider has it
	bounced    int64 // its sender has a report
	queued     int64 // neither, and the relay lists it
	lost       int64 // none of the three
	both       int64 // delivered, and yet reported as failed
	twice      int64 // copies beyond the first
	stray      int64 // taken by a provider, but never accepted from us
	unsure     int64 // letters whose 250 we never saw, since the connection ended
	reports    int64 // that reached the senders
	strange    int64 // reports about nobody, or about somebody for the second time
	late       int64 // bounces that came after the delivery
	complaints int64
	events     int64 // that the web hook has heard of
	again      int64 // events that it has heard of before
	unheard    int64 // deliveries, late bounces and complaints that it has not heard of
	unsigned   int64 // requests to it that could not be believed
	relay      relayStats
	firstTry   float64       // share of the delivered that took less than a second
	p50, p99   time.Duration // from our 250 to the provider's
}

// settle makes the account. queued reports whether the relay lists a recipient of a letter; it is
// asked only about those that are neither here nor there.
func settle(w *world, g *ledger, relay relayStats, queued func(id, recipient string) bool) account {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := account{letters: g.mu.accepted, recipients: g.mu.recipients, reports: g.mu.reports,
		strange: g.mu.strange, relay: relay}
	// An interrupted relay delivers meanwhile: what comes after this must not look like mail of nobody.
	var taken int64
	for _, s := range w.providers {
		t := s.recorder.Tally()
		taken += t.Unique + t.Nameless + t.Untracked
		a.twice += t.Duplicates() + t.Excused
	}
	var known int64
	for number, e := range g.mu.letters {
		id := (&letter{number: number}).id()
		if e.fates[0]&unsure != 0 {
			a.unsure++
		}
		for i, r := range e.recipients {
			delivered := w.providers[r.provider].recorder.Has(id, r.address)
			if delivered {
				known++
			}
			if e.fates[i]&accepted == 0 {
				continue
			}
			failed := e.fates[i]&bounced != 0
			switch {
			case delivered && failed:
				a.both++
			case delivered:
				a.delivered++
			case failed:
				a.bounced++
			case queued(id, r.address):
				a.queued++
			default:
				a.lost++
			}
		}
	}
	a.stray = max(taken-known, 0)
	a.measure(w, g)
	return a
}

// measure finds how long deliveries took. g.mu is held.
func (a *account) measure(w *world, g *ledger) {
	var took []time.Duration
	quick := 0
	for _, s := range w.providers {
		for _, d := range s.recorder.Deliveries() {
			t, ok := g.took(d)
			if !ok {
				continue
			}
			took = append(took, t)
			if t < time.Second {
				quick++
			}
		}
	}
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	a.p50, a.p99 = took[len(took)/2], took[len(took)*99/100]
	a.firstTry = float64(quick) / float64(len(took))
}

// took is the time from our 250 to the provider's; a provider can be the faster one. g.mu is
// held.
func (g *ledger) took(d sink.Delivery) (time.Duration, bool) {
	var number int
	if _, err := fmt.Sscanf(d.ID, "demo-%d", &number); err != nil {
		return 0, false
	}
	e := g.mu.letters[number]
	if e == nil {
		return 0, false
	}
	return max(0, d.Due.Sub(e.at)), true
}

// faults lists what must not be, in words; none is what we promise.
func (a *account) faults() []string {
	var out []string
	bad := func(n int64, what string) {
		if n != 0 {
			out = append(out, fmt.Sprintf("%s %s", commas(n), what))
		}
	}
	bad(a.lost, "recipients of accepted mail are neither delivered, nor bounced, nor in the queue")
	bad(a.twice, "copies reached a provider that had the message already")
	bad(a.both, "recipients were reported as failed and had got the message")
	bad(a.strange, "reports of failure were about nobody we wrote to, or came twice")
	bad(a.stray, "deliveries were of mail that we did not submit")
	bad(a.unheard, "deliveries, late bounces or complaints have no event at the web hook")
	bad(a.unsigned, "requests to the web hook had a wrong signature, or could not be read")
	bad(a.relay.accepted-a.relay.delivered-a.relay.bounced-a.relay.queued,
		"recipients are missing in the relay's own sum (accepted = delivered + bounced + queued)")
	return out
}

// summary is the account in words.
func (a *account) summary(submitting, elapsed time.Duration, p palette) []string {
	line := func(label string, n int64, note string) string {
		return fmt.Sprintf("  %-14s%10s  %s%s%s", label, commas(n), p.dim, note, p.off)
	}
	sum := a.delivered + a.bounced + a.queued
	lines := []string{
		"",
		fmt.Sprintf("  %s%s messages to %s recipients were accepted in %.0f s, %s of them by HTTP. After %.0f s they "+
			"are:%s", p.bold,
			commas(int64(a.letters)), commas(a.recipients), submitting.Seconds(), commas(a.byHTTP),
			elapsed.Seconds(), p.off),
		"",
		line("delivered", a.delivered, "as the providers' own records say"),
		line("bounced", a.bounced, fmt.Sprintf("as %s reports say that reached their senders", commas(a.reports))),
		line("still queued", a.queued, "as the relay's list says"),
		fmt.Sprintf("  %-14s%10s", "", strings.Repeat("─", 10)),
		line("together", sum, "of "+commas(a.recipients)+" recipients"),
		line("lost", a.lost, ""),
		line("twice", a.twice, "copies beyond the first"),
		"",
		line("came back", a.late+a.complaints,
			fmt.Sprintf("after the delivery: %s bounces and %s complaints", commas(a.late), commas(a.complaints))),
		line("events", a.events,
			fmt.Sprintf("at the application's web hook, which was down for a while; %s of them again",
				commas(a.again))),
	}
	if a.unsure > 0 {
		lines = append(lines, line("unsure", a.unsure, "messages: the session ended before their reply"))
	}
	lines = append(lines, "",
		fmt.Sprintf("  From our 250 to the provider's: %s typically, %s for one in a hundred;",
			brief(a.p50), brief(a.p99)),
		fmt.Sprintf("  %.1f %% within a second. The relay's own sum, reports to senders included:", 100*a.firstTry),
		fmt.Sprintf("  %s accepted = %s delivered + %s bounced + %s queued.",
			commas(a.relay.accepted), commas(a.relay.delivered), commas(a.relay.bounced), commas(a.relay.queued)))
	faults := a.faults()
	if len(faults) == 0 {
		return append(lines, "", "  "+p.green+"Every message is accounted for."+p.off)
	}
	for _, f := range faults {
		lines = append(lines, "  "+p.red+"WRONG: "+f+p.off)
	}
	return lines
}
