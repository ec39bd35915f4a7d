package report

import (
	"cmp"
	"slices"
	"strings"
)

// A bounce as text is read by its structure, not by who wrote it: addresses near words of failure, the more
// the form of their line is one that hosts list failed recipients in.

// strength is how surely an address in a notice is one that failed.
type strength uint8

const (
	mentioned strength = iota // somewhere
	alone                     // on a line that has nothing else
	told                      // in a sentence about a failure
	listed                    // in a form in which hosts list them
)

// candidate is an address of a notice.
type candidate struct {
	address  string
	final    string // the address that it was expanded to
	strength strength
	from, to int // where its line begins and ends
}

// maxCandidates bounds the addresses of a notice.
const maxCandidates = 2 * maxReports

// maxExplanation bounds the text behind an address that may explain its failure, in octets.
const maxExplanation = 4 << 10

// readNotice reads a bounce as text.
func (r *reader) readNotice() {
	action := ActionFailed
	r.result.Kind = Bounce
	if r.isDelay() {
		action, r.result.Kind = ActionDelayed, Delay
	}
	x := r.explainer(r.recipients())
	for i, c := range x.found {
		p := Report{Recipient: c.address, Final: c.final, Action: action}
		r.finish(&p, x.text(i))
		r.add(p)
	}
	if len(r.result.Reports) == 0 {
		p := Report{Action: action}
		r.finish(&p, x.general)
		r.result.Unnamed = &p
	}
	r.result.Host = cmp.Or(r.result.Host, clean(domainOf(r.from)))
}

// recipients returns the addresses that failed, in their order.
func (r *reader) recipients() []candidate {
	all := r.candidates()
	if failed := r.failedField(all); len(failed) > 0 {
		return failed
	}
	for _, least := range []strength{told, alone} {
		if chosen := atLeast(all, least); len(chosen) > 0 {
			return chosen
		}
	}
	if names := r.localNames(); len(names) > 0 {
		return names
	}
	if address := onlyRecipient(r.original, r.result.Original.To); address != "" && !isRedacted(address) {
		return []candidate{{address: address, to: len(r.notice)}}
	}
	if len(all) > 0 {
		for i := range all {
			if !sameAddress(all[i].address, all[0].address) {
				return nil
			}
		}
		return all[:1]
	}
	return nil
}

// atLeast returns the candidates of a strength, each address once: where it is the strongest.
func atLeast(all []candidate, least strength) (chosen []candidate) {
	at := make(map[string]int)
	for _, c := range all {
		if c.strength < least {
			continue
		}
		key := strings.ToLower(c.address)
		if i, known := at[key]; known {
			if c.final != "" && chosen[i].final == "" {
				chosen[i].final = c.final
			}
			continue
		}
		at[key] = len(chosen)
		chosen = append(chosen, c)
	}
	return chosen
}

// failedField reads X-Failed-Recipients, which Exim and Gmail write. It has the addresses after expansion;
// the notice may have those before it.
func (r *reader) failedField(all []candidate) (failed []candidate) {
	for _, value := range r.parts[0].All("X-Failed-Recipients") {
		for _, address := range addressesOf(value, maxReports) {
			c := candidate{address: address, to: len(r.notice), strength: listed}
			for _, other := range all {
				if sameAddress(other.address, address) || sameAddress(other.final, address) {
					c = other
					break
				}
			}
			failed = append(failed, c)
			if len(failed) >= maxReports {
				return failed
			}
		}
	}
	return failed
}

// candidates finds the addresses of the notice.
func (r *reader) candidates() (all []candidate) {
	s := scanner{reader: r, sinceIntro: maxList + 1}
	for at := 0; at < len(r.notice) && len(s.found) < maxCandidates; {
		end := len(r.notice)
		if i := strings.IndexByte(r.notice[at:], '\n'); i >= 0 {
			end = at + i
		}
		s.line(at, end)
		at = end + 1
	}
	return s.found
}

// scanner goes through a notice line by line.
type scanner struct {
	*reader
	found      []candidate
	before     string // the last line that was not empty, in lower case
	sinceIntro int    // lines since the last introduction or listed address
}

// maxList is how many lines after an introduction a list of addresses may begin, or go on.
const maxList = 10

func (s *scanner) line(from, to int) {
	line := s.notice[from:to]
	lower := strings.ToLower(line)
	if len(lower) != len(line) {
		lower = asciiLower(line)
	}
	trimmed := strings.TrimLeft(lower, " \t>*-|•·<'\"[(`")
	if strings.TrimSpace(trimmed) == "" {
		s.sinceIntro++
		return
	}
	if has(lower, introductions) {
		s.sinceIntro = 0
	}
	if strings.IndexByte(line, '@') >= 0 && len(line) < 4096 && !quotesField(trimmed) {
		s.addressLine(from, line, lower)
	}
	s.sinceIntro++
	s.before = lower
}

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

// quotesField reports whether a line quotes a field of the message: its addresses may be valid.
func quotesField(trimmed string) bool {
	name, _, ok := strings.Cut(trimmed, ":")
	if !ok {
		return false
	}
	switch strings.TrimSpace(name) {
	case "from", "sender", "reply-to", "return-path", "message-id", "message id", "subject", "cc", "mail from",
		"return path", "envelope-from", "envelope sender", "original sender", "mailto", "x-sender",
		"message-id of", "received", "references", "in-reply-to", "errors-to", "von", "de", "absender",
		"remitente", "sender address", "list-unsubscribe", "delivered-to":
		return true
	}
	return false
}

// addressLine judges the addresses of a line.
func (s *scanner) addressLine(from int, line, lower string) {
	spans := addresses(line, 50)
	for i, sp := range spans {
		address := line[sp.from:sp.to]
		head, tail := lower[:sp.from], lower[sp.to:]
		if s.isExpansion(head) {
			s.expanded(address, from, from+len(line))
			continue
		}
		if n := len(s.found); n > 0 && sameAddress(s.found[n-1].final, address) {
			continue // what became of the address that was expanded
		}
		c := candidate{address: address, from: from, to: from + len(line)}
		c.strength = s.judge(head, tail, lower, i)
		if s.foreign(&c, head) {
			continue
		}
		if c.strength == listed {
			s.sinceIntro = 0
		}
		s.found = append(s.found, c)
	}
}

// isExpansion reports whether what stands before an address calls it the one before expansion.
func (s *scanner) isExpansion(head string) bool {
	head = strings.TrimRight(head, " <\t")
	return slices.ContainsFunc([]string{
		"expanded from", "expanded from:", "generated from", "ultimately generated from", "alias of",
		"originally addressed to",
	}, func(phrase string) bool {
		return strings.HasSuffix(head, phrase)
	})
}

// expanded names the recipient before expansion: it is the one that the sender knows.
func (s *scanner) expanded(address string, from, to int) {
	if n := len(s.found); n > 0 && s.found[n-1].strength == listed && s.found[n-1].final == "" &&
		s.found[n-1].from >= from-200 {
		last := &s.found[n-1]
		last.final, last.address = last.address, address
		return
	}
	s.found = append(s.found, candidate{address: address, strength: listed, from: from, to: to})
}

// judge returns the strength of the address between head and tail, the n-th of its line.
func (s *scanner) judge(head, tail, lower string, n int) strength {
	inList := s.sinceIntro <= maxList
	bare := strings.TrimLeft(head, " \t>*-|•·<'\"[(`")
	open := strings.HasSuffix(head, "<")
	rest := strings.TrimLeft(tail, ">'\"])`")
	switch {
	case strings.HasSuffix(strings.TrimRight(head, " <\t"), "rcpt to:"),
		strings.HasSuffix(strings.TrimRight(head, " <\t"), "rcpt to"):
		return listed
	case bare == "" && open && strings.HasPrefix(tail, ">:"):
		return listed
	case bare == "" && endsEntry(rest):
		if inList {
			return listed
		}
		if strings.TrimSpace(rest) == "" {
			return alone
		}
	case n > 0 && inList && strings.Trim(bare, " ,;<>") == "" || n > 0 && inList && isListOf(lower):
		return listed
	case isReplyLine(lower):
		return listed
	case isLabelled(bare):
		return listed
	}
	if has(lower, introductions) || has(s.before, introductions) && strings.TrimSpace(s.before) != "" {
		return told
	}
	if label := strings.TrimRight(head, " <"); inList &&
		(strings.HasPrefix(bare, "to:") || strings.HasSuffix(label, "smtp=") || strings.HasSuffix(label, "smtp:")) {
		return told
	}
	return mentioned
}

// endsEntry reports whether what follows an address fits a list of failed ones.
func endsEntry(rest string) bool {
	rest = strings.TrimLeft(rest, " \t")
	if rest == "" {
		return true
	}
	return slices.ContainsFunc(entryEnds, func(p string) bool { return strings.HasPrefix(rest, p) })
}

// isListOf reports whether a line has addresses and the marks between them only.
func isListOf(lower string) bool {
	words := strings.FieldsFunc(lower, func(r rune) bool { return strings.ContainsRune(" \t,;<>'\"", r) })
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(w, "@") })
}

// isReplyLine reports whether a line is a refusal as a host gave it.
func isReplyLine(lower string) bool {
	lower = strings.TrimLeft(lower, " \t<>|*-:")
	for _, said := range []string{"received ", "reply: ", "response: ", "smtp; ", "smtp;", "error: ", "reason: "} {
		lower = strings.TrimLeft(strings.TrimPrefix(lower, said), " \t<>|*-:")
	}
	if len(lower) < 5 || lower[0] != '4' && lower[0] != '5' {
		return false
	}
	return isDigit(lower[1]) && isDigit(lower[2]) && (lower[3] == ' ' || lower[3] == '-')
}

// isLabelled reports whether what stands before an address is a label for recipients.
func isLabelled(bare string) bool {
	bare = strings.TrimRight(bare, " <\t'\"(`")
	label, ok := strings.CutSuffix(bare, ":")
	if !ok {
		label, ok = strings.CutSuffix(bare, "=")
	}
	return ok && len(label) < 80 &&
		(has(label, introductions) || strings.HasSuffix(label, "recipient") || strings.HasSuffix(label, "address"))
}

// foreign reports whether an address is somebody else's: the sender's, or one to turn to for help.
func (s *scanner) foreign(c *candidate, head string) bool {
	words := strings.TrimRight(head, " <\t\"'([")
	last := words[strings.LastIndexAny(words, " \t")+1:]
	switch strings.Trim(last, ":") {
	case "from", "by", "contact", "sender", "mailto", "id":
		return true
	case "":
		if strings.HasSuffix(strings.TrimSpace(s.before), "sent by") ||
			strings.HasSuffix(strings.TrimSpace(s.before), "sent from") {
			return true
		}
	}
	if c.strength == listed {
		return false
	}
	if c.strength != alone {
		if near := words[max(0, len(words)-48):]; has(near, helpful) {
			return true
		}
	}
	switch local := localOf(c.address); local {
	case "abuse", "support", "helpdesk", "admin", "noreply", "no-reply", "webmaster":
		return true
	default:
		if isDaemon(local) {
			return true
		}
	}
	top := s.parts[0].Header
	return slices.ContainsFunc([]string{
		s.from, s.result.Original.From, addressOf(s.original.Get("Return-Path")), addressOf(s.original.Get("Sender")),
		addressOf(top.Get("To")), addressOf(top.Get("Reply-To")), addressOf(top.Get("Delivered-To")),
	}, func(sender string) bool {
		return sameAddress(c.address, sender)
	})
}

// localNames reads local parts without a domain, as some hosts list their own users.
func (r *reader) localNames() (names []candidate) {
	domain, inList, at := domainOf(r.from), false, 0
	for line := range strings.Lines(r.notice) {
		from := at
		at += len(line)
		word := strings.TrimSpace(line)
		switch {
		case word == "":
		case inList && (line[0] == ' ' || line[0] == '\t') && isName(word):
			names = append(names, candidate{address: word + "@" + domain, strength: listed, from: from, to: at})
		default:
			lower := strings.ToLower(word)
			inList = strings.HasSuffix(word, ":") &&
				(has(lower, introductions) || strings.Contains(lower, "not accepting mail"))
		}
		if len(names) >= maxReports || domain == "" {
			return names
		}
	}
	return names
}

func isName(word string) bool {
	if len(word) < 3 || len(word) > 64 {
		return false
	}
	for i := 0; i < len(word); i++ {
		if c := word[i]; !isWord(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// explainer finds what explains the failures of a notice.
type explainer struct {
	notice   string
	found    []candidate
	general  string // for those beside whom nothing stands
	answered bool   // the general text has a host's reply
}

func (r *reader) explainer(found []candidate) *explainer {
	x := &explainer{notice: r.notice, found: found}
	x.general, x.answered = bestParagraph(r.notice, func(paragraph string) bool {
		return has(strings.ToLower(paragraph), introductions)
	})
	return x
}

// text returns the text that explains the failure of the i-th recipient: the paragraph with a host's reply between
// its address and the next one, or else what stands beside the address, or below it.
func (x *explainer) text(i int) string {
	c, to := x.found[i], len(x.notice)
	if i+1 < len(x.found) && x.found[i+1].from > c.from {
		to = x.found[i+1].from
	}
	text, answered := bestParagraph(x.notice[c.from:min(to, c.from+maxExplanation)], explains)
	if text == "" || !answered && len(x.found) == 1 && x.answered {
		return x.general
	}
	return withoutAddress(text, c)
}

// of returns the number of a recipient, -1 when the notice does not name it.
func (x *explainer) of(p *Report) int {
	for i := range x.found {
		for _, address := range []string{x.found[i].address, x.found[i].final} {
			if address != "" && (sameAddress(address, p.Recipient) || sameAddress(address, p.Final)) {
				return i
			}
		}
	}
	return -1
}

// withoutAddress takes off the address that a text begins with.
func withoutAddress(text string, c candidate) string {
	rest := strings.TrimLeft(text, " \t>*<'\"")
	for _, address := range []string{c.address, c.final} {
		if cut, ok := strings.CutPrefix(rest, address); ok && address != "" {
			if cut = strings.TrimLeft(strings.TrimLeft(cut, ">'\""), " \t\r\n:."); explains(cut) {
				return cut
			}
		}
	}
	return text
}

// bestParagraph returns the first paragraph with a host's reply, or else the first that will do.
func bestParagraph(text string, will func(string) bool) (best string, answered bool) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.TrimSpace(paragraph) == "" {
			continue
		}
		if _, ok := findReply(paragraph); ok {
			return paragraph, true
		}
		if best == "" && will(paragraph) {
			best = paragraph
		}
	}
	return best, false
}

// explains reports whether a text has words besides addresses.
func explains(text string) bool {
	words := 0
	for _, word := range strings.Fields(text) {
		word = strings.Trim(word, "[](){}<>\"'.,;:-")
		if word != "" && (isLetter(word[0]) || word[0] >= 0x80) && !strings.Contains(word, "@") {
			words++
		}
	}
	return words > 1
}

// isDelay reports whether the host is still trying.
func (r *reader) isDelay() bool {
	if has(r.lower, surelyFinal) {
		return false
	}
	if has(r.lower, surelyDelayed) {
		return true
	}
	return (has(r.subject, delaySubjects) || has(r.lower, delayTexts)) && !has(r.lower, finalTexts)
}
