package report

import (
	"cmp"
	"slices"
	"strings"

	"example.org/mta/bounce"
	"example.org/mta/internal/reply"
)

// Read reads a message, header and body. It never fails: what it does not understand is Other.
func Read(content []byte, o Options) *Result {
	if o.Classify == nil {
		o.Classify = func(r *reply.Reply, _ string) bounce.Class { return bounce.Of(*r) }
	}
	result := read(content, o)
	if result.forwarded != nil {
		if inner := read(result.forwarded, o); inner.Kind != Other && inner.Kind != AutoReply {
			return &inner.Result
		}
	}
	return &result.Result
}

// reading is a Result, and the report that the message only forwards.
type reading struct {
	Result
	forwarded []byte
}

func read(content []byte, o Options) *reading {
	r := &reader{o: o, parts: Split(content), result: &reading{}}
	r.divide()
	r.result.Original = originalOf(r.original)
	r.collect()
	r.decide()
	return r.result
}

// reader is a message that is being read.
type reader struct {
	o      Options
	parts  []Part
	result *reading

	statuses    Header // of the delivery status, all groups
	feedback    Header
	disposition Header
	original    Header // of what is returned
	notice      string // the text for people, without what is returned
	lower       string // the notice in lower case
	subject     string // in lower case
	from        string // the address of the From field
}

// maxNotice bounds the text for people, in octets: reports come to the point.
const maxNotice = 64 << 10

// divide finds out what each part is for.
func (r *reader) divide() {
	var plain, page, preamble strings.Builder
	for i := range r.parts {
		p := &r.parts[i]
		switch kind := r.typeOf(p); {
		case kind == "message/delivery-status":
			r.statuses = append(append(r.statuses, p.Header...), allFields([]byte(p.Text()))...)
		case kind == "message/feedback-report":
			r.feedback = allFields([]byte(p.Text()))
		case kind == "message/disposition-notification":
			r.disposition = allFields([]byte(p.Text()))
		case isOriginal(kind):
			if r.original == nil {
				content := p.Content()
				r.original = readOriginal(content)
				if !returnsAnOriginal(r.original) && returnsAnOriginal(p.Header) {
					r.original = p.Header // the empty line between the two headers is missing
				}
				r.noteForwarded(content)
			}
		case p.Multipart():
			preamble.Write(p.Body)
		case r.original != nil: // what follows the original is seldom the host's
		case kind == "text/html":
			page.WriteString(fromHTML(p.Text()))
		case strings.HasPrefix(kind, "text/") && plain.Len() < maxNotice:
			plain.WriteString(p.Text())
			plain.WriteByte('\n')
		}
	}
	r.notice = plain.String()
	if strings.TrimSpace(r.notice) == "" {
		r.notice = page.String()
	}
	if strings.TrimSpace(r.notice) == "" {
		r.notice = preamble.String()
	} else {
		r.result.forwarded = nil
	}
	if r.statuses != nil {
		r.result.forwarded = nil
	}
	r.cut()
	r.lower = strings.ToLower(r.notice)
	r.subject = strings.ToLower(r.parts[0].Decoded("Subject"))
	r.from = addressOf(r.parts[0].Get("From"))
}

// noteForwarded remembers a report that is the only thing that a message has to say.
func (r *reader) noteForwarded(content []byte) {
	if strings.EqualFold(r.original.Param("Content-Type", "report-type"), "delivery-status") {
		r.result.forwarded = content
	}
}

// typeOf returns the media type of a part, in the spelling of the standards.
func (r *reader) typeOf(p *Part) string {
	switch p.Type {
	case "message/delivery-status", "message/delivery_status", "message/deliverystatus",
		"message/global-delivery-status", "text/delivery-status":
		return "message/delivery-status"
	case "message/feedback-report", "message/x-feedback-report", "text/feedback-report":
		return "message/feedback-report"
	case "message/disposition-notification", "message/global-disposition-notification":
		return "message/disposition-notification"
	}
	return p.Type
}

// cut divides the notice from what is returned below it.
func (r *reader) cut() {
	notice, rest := cutOriginal(r.notice)
	if r.original == nil && rest != "" {
		if h := readOriginal([]byte(rest)); returnsAnOriginal(h) {
			r.original = h
		}
	}
	r.notice = notice[:min(len(notice), maxNotice)]
}

// collect collects what may name the message.
func (r *reader) collect() {
	r.tokensOf(r.original)
	r.tokensOf(r.statuses)
	r.tokensOf(r.feedback)
	r.tokensOf(r.disposition)
	for i := range r.parts {
		r.tokensOf(r.parts[i].Header)
	}
	r.collectTokens(r.notice)
}

// decide finds the kind and reads the recipients: by the parts that machines write, then by what people
// read.
func (r *reader) decide() {
	switch {
	case r.o.Purpose == Unsubscription:
		r.readUnsubscription()
	case r.feedback != nil:
		r.readFeedback(r.feedback)
	case r.readStatuses():
	case r.disposition != nil:
		r.readDisposition(r.disposition)
	case r.isChallenge():
		r.result.Kind = Challenge
	case r.isReply():
		r.result.Kind = AutoReply
	case r.isBounce():
		r.readNotice()
	case r.isUnsubscription():
		r.readUnsubscription()
	case r.isComplaint():
		r.result.Kind = Complaint
		r.complainOfOriginal()
	case r.answersByItself():
		r.result.Kind = AutoReply
	}
}

// readStatuses reads the delivery status. A status that names nobody leaves the notice to be read.
func (r *reader) readStatuses() bool {
	fields := r.statuses
	if fields == nil && strings.Contains(r.lower, "final-recipient:") {
		fields = allFields([]byte(r.notice[strings.Index(r.lower, "final-recipient:"):]))
	}
	all, host := statuses(fields)
	r.result.Host = clean(host)
	for _, f := range all {
		p := r.statusReport(f)
		if p.Recipient == "" {
			continue
		}
		r.add(p)
	}
	if len(r.result.Reports) == 0 {
		return false
	}
	r.fillDiagnostics()
	r.result.Kind = kindOf(r.result.Reports)
	if has(strings.ToLower(r.result.Reports[0].Diagnostic), challengeReplies) {
		r.result.Kind = Challenge
	}
	return true
}

// add adds a report, once for each recipient; the worst one counts.
func (r *reader) add(p Report) {
	for i := range r.result.Reports {
		if old := &r.result.Reports[i]; sameAddress(old.Recipient, p.Recipient) {
			if old.Action != ActionFailed && p.Action == ActionFailed {
				*old = p
			}
			return
		}
	}
	if len(r.result.Reports) < maxReports {
		r.result.Reports = append(r.result.Reports, p)
	}
}

// fillDiagnostics takes from the notice what the status of those that failed lacks.
func (r *reader) fillDiagnostics() {
	var x *explainer
	for i := range r.result.Reports {
		p := &r.result.Reports[i]
		if p.Diagnostic != "" || p.Action.success() {
			continue
		}
		if x == nil {
			x = r.explainer(atLeast(r.candidates(), alone))
		}
		if n := x.of(p); n >= 0 {
			r.finish(p, x.text(n))
		} else if len(r.result.Reports) == 1 {
			r.finish(p, x.general)
		}
	}
}

// kindOf returns the kind of a message from its recipients: a failure is more than a delay, and that more than
// a success.
func kindOf(reports []Report) Kind {
	kind := Delivered
	for i := range reports {
		switch reports[i].Action {
		case ActionFailed:
			return Bounce
		case ActionDelayed:
			kind = Delay
		}
	}
	return kind
}

// readDisposition reads what a reader did with the message (RFC 8098). A filter that refuses a message after it
// was accepted says that it has deleted it by itself (RFC 5429, 2.2).
func (r *reader) readDisposition(fields Header) {
	r.result.Kind = Disposition
	p := Report{Recipient: cmp.Or(recipientOf(fields.Get("Original-Recipient")),
		recipientOf(fields.Get("Final-Recipient")))}
	did := strings.ToLower(fields.Get("Disposition"))
	if strings.Contains(did, "automatic-action") && strings.Contains(did, "deleted") {
		r.result.Kind, p.Action = Bounce, ActionFailed
		r.finish(&p, r.explainer(nil).general)
	} else {
		p.Recipient, p.Diagnostic = clean(p.Recipient), clean(fields.Get("Disposition"))
	}
	if p.Recipient != "" {
		r.result.Reports = []Report{p}
	}
	if id := fields.Get("Original-Message-ID"); r.result.Original.MessageID == "" {
		r.result.Original.MessageID = clean(id)
	}
}

// nullSender reports whether the message came from nobody, as reports do (RFC 5321, 4.5.5).
func (r *reader) nullSender() bool {
	path := strings.TrimSpace(r.parts[0].Get("Return-Path"))
	return path == "<>" || isDaemon(strings.ToLower(strings.Trim(path, "<>")))
}

// isBounce weighs the signs of a report by a host. When none of them is of its writer, a recipient must be listed
// as hosts do, or a message returned; at an address for something else that counts for nothing.
func (r *reader) isBounce() bool {
	writer, words := r.writerWeight(), r.wordsWeight()
	switch {
	case writer > 0:
		return writer+words >= 5
	case r.o.Purpose != AnyReport || words < 5:
		return false
	}
	return r.original != nil && words >= 6 || len(atLeast(r.candidates(), listed)) > 0
}

// writerWeight weighs the signs that a host wrote the message.
func (r *reader) writerWeight() (weight int) {
	h := r.parts[0].Header
	if h.Has("X-Failed-Recipients") {
		weight += 5
	}
	if strings.EqualFold(h.Param("Content-Type", "report-type"), "delivery-status") || r.statuses != nil {
		weight += 5
	}
	if r.nullSender() {
		weight += 2
		if r.from == "" {
			weight++
		}
	}
	if from := strings.ToLower(h.Get("From")); isDaemon(localOf(r.from)) || has(from, daemonNames) {
		weight += 3
	}
	return weight
}

// wordsWeight weighs the signs that the message is about a failure.
func (r *reader) wordsWeight() (weight int) {
	if has(r.subject, bounceSubjects) {
		weight += 3
	}
	if strings.HasPrefix(strings.ToLower(r.parts[0].Get("Auto-Submitted")), "auto-") {
		weight++
	}
	if has(r.lower, introductions) {
		weight += 2
	}
	if _, ok := findReply(r.notice); ok {
		weight++
	}
	if r.original != nil {
		weight++
	}
	return weight
}

// isReply reports whether a person's host answers for that person.
func (r *reader) isReply() bool {
	h := r.parts[0].Header
	if h.Has("X-Failed-Recipients") || r.statuses != nil ||
		isDaemon(localOf(r.from)) && !has(r.subject, replySubjects) {
		return false
	}
	if has(r.subject, bounceSubjects) {
		return false
	}
	if has(r.subject, replySubjects) && r.o.Purpose == AnyReport {
		return true
	}
	return r.from != "" && r.original == nil &&
		strings.HasPrefix(strings.ToLower(h.Get("Auto-Submitted")), "auto-replied")
}

// answersByItself goes by the fields that automatic answers have (RFC 3834).
func (r *reader) answersByItself() bool {
	h := r.parts[0].Header
	if strings.HasPrefix(strings.ToLower(h.Get("Auto-Submitted")), "auto-replied") {
		return true
	}
	if slices.ContainsFunc([]string{
		"X-Autoreply", "X-Autorespond", "X-Autoresponder", "X-AutoReply-From", "X-Mail-Autoreply",
		"X-FC-MachineGenerated",
	}, h.Has) {
		return true
	}
	if r.nullSender() && r.from != "" && !isDaemon(localOf(r.from)) && r.original == nil {
		return true
	}
	switch strings.ToLower(h.Get("Precedence")) {
	case "auto_reply", "auto-reply", "autoreply":
		return true
	}
	return has(r.lower, replyTexts)
}

func (r *reader) isChallenge() bool {
	h := r.parts[0].Header
	for _, f := range h {
		name := strings.ToLower(f.Name)
		if strings.HasPrefix(name, "x-tmda") || strings.HasPrefix(name, "x-boxbe") ||
			strings.HasPrefix(name, "x-spamarrest") {
			return true
		}
	}
	if h.Has("X-Failed-Recipients") || r.statuses != nil || isDaemon(localOf(r.from)) {
		return false
	}
	return has(r.subject, challengeMarks) || has(r.lower, challengeMarks) && has(r.lower, challengeDemands)
}

// isUnsubscription reports whether somebody asks for no more mail at an address for something else.
func (r *reader) isUnsubscription() bool {
	subject := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(r.subject), "re:"))
	subject = cmp.Or(subject, strings.TrimSpace(r.lower))
	return subject == "unsubscribe" || strings.HasPrefix(subject, "unsubscribe:")
}

// readUnsubscription reports the one who wrote. Its content proves nothing against it: Apple Mail marks requests as
// automatic replies (RFC 3834), and others have no words.
func (r *reader) readUnsubscription() {
	r.result.Kind = Unsubscribe
	if r.from != "" {
		r.result.Reports = []Report{{Recipient: clean(r.from), Class: bounce.Unsubscribe}}
	}
}

// isComplaint reports whether a message calls what it returns spam.
func (r *reader) isComplaint() bool {
	if r.o.Purpose == Complaints {
		return r.original != nil && !r.answersByItself()
	}
	return r.original != nil && has(r.subject, complaintSubjects)
}
