package http

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"unicode/utf8"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
	"example.org/mta/submission/request"
)

// Bounds of what a request has in hand.
const (
	together   = 100      // messages whose recipients are looked at together
	atOnce     = 16       // of them at a time, and as many that filters decide on
	groupSize  = 8 << 20  // octets of messages that are committed together
	dryContent = 10 << 20 // octets of messages that a dry run gives back
)

// sending is the messages of a request on their way into the queue.
type sending struct {
	x    *Submission
	jobs []job // the messages, by position
	sent *Sent
	// commits is a context that does not end with the client: from the first commit on all is taken.
	commits context.Context

	open     []*intake.Message // by position; nil: not begun, refused, or at its end
	filtered []int             // positions of the messages on which a filter has to decide
	ready    []int             // of those that can be committed
	octets   int64             // of both
	accepted int
	dry      int          // octets of messages that a dry run gives back
	refused  *reply.Reply // the first refusal of a whole message
}

// Send takes the messages of requests in that have no faults. An error is a Problem or Faults; as long as it
// does not name messages nothing was accepted.
func (x *Submission) Send(requests ...*request.Request) (*Sent, error) {
	ctx := x.call.Context()
	jobs, err := x.jobs(ctx, requests)
	if err != nil {
		return nil, err
	}
	s := x.sending(jobs)
	defer s.end()
	n := len(jobs)
	for from := 0; from < n; from += together {
		to := min(from+together, n)
		if err := s.begin(ctx, from, to); err != nil {
			return nil, err
		}
		for i := from; i < to; i++ {
			if err := s.fill(ctx, i); err != nil {
				return nil, err
			}
			if s.octets >= groupSize {
				if err := s.judge(ctx); err != nil {
					return nil, err
				}
			}
			if s.octets >= groupSize && i+1 < n {
				if err := s.commit(ctx, false); err != nil {
					return nil, err
				}
			}
		}
		if err := s.judge(ctx); err != nil {
			return nil, err
		}
	}
	return s.finish(ctx)
}

// SendRaw takes one message in as it comes from the body.
func (x *Submission) SendRaw(q *request.Request, body io.Reader) (*Sent, error) {
	ctx := x.call.Context()
	sum, err := x.sum()
	if err != nil {
		return nil, err
	}
	if err := x.repeatAnswered(sum, body); err != nil || x.Earlier != nil {
		return x.Earlier, err
	}
	jobs := []job{{q: q, declared: x.call.Request.ContentLength}}
	if err := x.charge(jobs); err != nil {
		return nil, err
	}
	s := x.sending(jobs)
	defer s.end()
	if err := s.begin(ctx, 0, 1); err != nil {
		return nil, err
	}
	if err := s.stream(body, sum); err != nil {
		return nil, err
	}
	if err := x.repeat(sum); err != nil || x.Earlier != nil {
		return x.Earlier, err
	}
	if id, known := x.acceptedEarlier(0); known {
		if s.open[0] != nil {
			s.drop(0)
		}
		s.sent.Messages[0] = s.acceptedBefore(0, id, q.To)
	}
	if err := s.take(ctx, 0); err != nil {
		return nil, err
	}
	return s.finish(ctx)
}

// stream writes the body into the only message, and all of it into a sum that isn't nil.
func (s *sending) stream(body io.Reader, sum *intake.RequestSum) error {
	if sum != nil {
		body = io.TeeReader(body, sum)
	}
	var to io.Writer = io.Discard
	if m := s.open[0]; m != nil {
		to = m
	}
	_, err := io.Copy(to, body)
	if refused := (*reply.Reply)(nil); errors.As(err, &refused) {
		if err = nil; sum != nil {
			_, err = io.Copy(io.Discard, body)
		}
	}
	return err
}

func (x *Submission) sending(jobs []job) *sending {
	n := len(jobs)
	s := &sending{x: x, jobs: jobs, open: make([]*intake.Message, n),
		sent: &Sent{Messages: make([]SentMessage, n), dry: jobs[0].q.DryRun}}
	s.commits = context.WithoutCancel(x.call.Context())
	return s
}

// end lets go of what was not committed.
func (s *sending) end() {
	for _, m := range s.open {
		if m != nil {
			m.Drop()
		}
	}
}

// begin opens messages and gives them their recipients.
func (s *sending) begin(ctx context.Context, from, to int) error {
	if s.accepted > 0 {
		ctx = s.commits
	}
	for i := from; i < to; i++ {
		job := &s.jobs[i]
		mailboxes := job.recipients()
		if id, known := s.x.acceptedEarlier(i); known {
			s.sent.Messages[i] = s.acceptedBefore(i, id, mailboxes)
			continue
		}
		m, refused := s.x.call.server.desk.Begin(ctx, &s.x.client, job.envelope(mailboxes))
		if refused != nil {
			s.report(i, "MAIL", refused, "")
			if s.accepted == 0 || refused.Temporary() {
				return s.stop(refused)
			}
			s.turnDown(i, refused) // the others are accepted already
			continue
		}
		extras := job.extras()
		extras.TraceID = traceID(s.x.call.Request.Header) // of the request, whose sum does not cover it
		m.Set(extras)
		s.open[i] = m
	}
	s.addressAll(ctx, from, to)
	if s.accepted == 0 && ctx.Err() != nil {
		return errGone(ctx)
	}
	for i := from; i < to; i++ {
		if m := s.open[i]; m != nil && len(m.Recipients()) == 0 {
			s.drop(i)
		}
	}
	return nil
}

// addressAll gives messages their recipients, several at a time: each can wait for answers about its recipients.
func (s *sending) addressAll(ctx context.Context, from, to int) {
	if to-from == 1 && s.open[from] != nil {
		s.address(ctx, from)
		return
	}
	severally(to-from, func(i int) {
		if s.open[from+i] != nil {
			s.address(ctx, from+i)
		}
	})
}

// severally calls do for 0 to n-1, several at a time.
func severally(n int, do func(i int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			do(i)
			<-slots
		})
	}
	all.Wait()
}

// errGone ends a request whose client has left before anything was accepted.
func errGone(ctx context.Context) error {
	return &Problem{Status: http.StatusServiceUnavailable,
		Detail: "the client or the relay ended the request: nothing was accepted", RetryAfter: shortPause,
		Cause: ctx.Err(), Reason: "gone"}
}

// address gives a message its recipients, each once.
func (s *sending) address(ctx context.Context, i int) {
	m, j, out := s.open[i], &s.jobs[i], &s.sent.Messages[i]
	to := j.recipients()
	out.Recipients = make([]SentRecipient, 0, len(to))
	seen := make(map[envelope.Address]bool, len(to))
	for _, box := range to {
		a := wire(box.Address)
		if seen[a] {
			continue
		}
		seen[a] = true
		r := SentRecipient{Address: string(box.Address), Status: Accepted}
		if refused := m.Recipient(ctx, envelope.Recipient{Address: a, Notify: j.q.Notify}); refused != nil {
			r.refuse(refused)
			s.report(i, "RCPT", refused, a)
		}
		out.Recipients = append(out.Recipients, r)
	}
}

// refuse notes why a recipient was not accepted.
func (r *SentRecipient) refuse(why *reply.Reply) {
	r.Status, r.Code, r.Detail = Refused, why.Status().String(), why.Text
	if why.Temporary() {
		r.Status = Failed
	}
}

// report has a refusal written into the accounting log, in SMTP's words for what was refused.
func (s *sending) report(i int, command string, r *reply.Reply, rcpt envelope.Address) {
	if s.sent.dry {
		return
	}
	e := intake.Rejection{Sender: wire(s.jobs[i].sender()), Recipient: rcpt, Reply: *r}
	e.Reply.Command = command
	if m := s.open[i]; m != nil && rcpt == "" {
		e.Recipients = m.Recipients()
	}
	s.x.call.server.desk.Report(&s.x.client, e)
}

// acceptedBefore is a message that an earlier request with the same key has brought already.
func (s *sending) acceptedBefore(i int, id envelope.ID, to []request.Mailbox) SentMessage {
	m := SentMessage{ID: id.String(), Status: s.taken(i)}
	for _, box := range to {
		m.Recipients = append(m.Recipients, SentRecipient{Address: string(box.Address), Status: Accepted})
	}
	s.accepted++
	return m
}

// taken is the state of a message in the queue.
func (s *sending) taken(i int) string {
	if x := s.jobs[i].extras(); x.Release.After(s.x.Now) || x.Spread > 0 {
		return Scheduled
	}
	return Accepted
}

// drop gives a message up that has no recipients left, or was refused.
func (s *sending) drop(i int) {
	s.open[i].Drop()
	s.open[i] = nil
	out := &s.sent.Messages[i]
	out.Status, out.Content, out.Base64 = Refused, "", nil
	for _, r := range out.Recipients {
		if r.Status == Failed {
			out.Status = Failed
		}
	}
}

// fill writes a message's content.
func (s *sending) fill(ctx context.Context, i int) error {
	m := s.open[i]
	if m == nil {
		return nil
	}
	var to io.Writer = m
	var kept bytes.Buffer
	if s.sent.dry {
		to = io.MultiWriter(m, &kept)
	}
	if raw := s.jobs[i].q.Raw; raw != nil {
		to.Write(raw) // what is wrong with it comes back from End
	} else if err := s.compose(ctx, i, to); err != nil {
		return err
	}
	if err := s.take(ctx, i); err != nil || !s.sent.dry {
		return err
	}
	return s.show(i, kept.Bytes())
}

// compose builds a message. An error of writing is the message's refusal, which comes back from End.
func (s *sending) compose(ctx context.Context, i int, to io.Writer) error {
	if s.accepted > 0 {
		ctx = s.commits
	}
	letter, err := s.jobs[i].letter(ctx)
	if err != nil {
		return err
	}
	var refused *reply.Reply
	if _, err := letter.WriteTo(to); err != nil && !errors.As(err, &refused) {
		return fmt.Errorf("building message %d: %w", i, err)
	}
	return nil
}

// take makes a message ready for the commit if its content can be accepted, unless a filter has to decide on that.
func (s *sending) take(ctx context.Context, i int) error {
	m := s.open[i]
	if m == nil {
		return nil
	}
	s.octets += m.Size()
	if m.Filtered() {
		s.filtered = append(s.filtered, i)
		return nil
	}
	if s.accepted > 0 {
		ctx = s.commits
	}
	return s.settle(i, m.End(ctx))
}

// judge has filters decide on the messages that wait for that.
func (s *sending) judge(ctx context.Context) error {
	all := s.filtered
	if s.filtered = nil; len(all) == 0 {
		return nil
	}
	within, refused := ctx, make([]*reply.Reply, len(all))
	if s.accepted > 0 {
		within = s.commits
	}
	severally(len(all), func(j int) { refused[j] = s.open[all[j]].End(within) })
	for j, i := range all {
		if err := s.settle(i, refused[j]); err != nil {
			return err
		}
	}
	slices.Sort(s.ready)
	return nil
}

// settle notes whether a message can be committed.
func (s *sending) settle(i int, refused *reply.Reply) error {
	if refused == nil {
		s.ready = append(s.ready, i)
		return nil
	}
	s.octets -= s.open[i].Size()
	s.report(i, "content", refused, "")
	if refused.Temporary() {
		return s.stop(refused)
	}
	s.refused = cmp.Or(s.refused, refused)
	s.turnDown(i, refused)
	s.drop(i)
	return nil
}

// turnDown notes that a whole message was refused.
func (s *sending) turnDown(i int, refused *reply.Reply) {
	out := s.reached(i)
	out.Status, out.Detail = Refused, refused.Text
	for j := range out.Recipients {
		if r := &out.Recipients[j]; r.Status != Refused && r.Status != Failed {
			r.refuse(refused)
		}
	}
}

// show gives a message of a dry run back.
func (s *sending) show(i int, content []byte) error {
	if s.open[i] == nil {
		return nil
	}
	if s.dry += len(content); s.dry > dryContent {
		return Problemf(http.StatusRequestEntityTooLarge,
			"a dry run returns %d octets of messages at most: send fewer recipients", dryContent)
	}
	if out := &s.sent.Messages[i]; utf8.Valid(content) {
		out.Content = string(content)
	} else {
		out.Base64 = content
	}
	return nil
}

// commit makes the messages durable that are ready. last says that the request has no more.
func (s *sending) commit(ctx context.Context, last bool) error {
	if s.accepted == 0 && ctx.Err() != nil {
		return errGone(ctx)
	}
	all := make([]*intake.Message, len(s.ready))
	for j, i := range s.ready {
		all[j] = s.open[i]
		s.sent.Messages[i].Status = s.taken(i)
	}
	keyed, err := s.keyed(last)
	if err != nil {
		return err
	}
	done, refused := s.x.call.server.desk.CommitAll(s.commits, all, keyed)
	for j, m := range done {
		s.sent.Messages[s.ready[j]].ID = m.ID.String()
	}
	for _, i := range s.ready[len(done):] {
		s.sent.Messages[i].Status = ""
	}
	for _, i := range s.ready {
		s.open[i].Drop()
		s.open[i] = nil
	}
	s.accepted += len(done)
	s.ready, s.octets = s.ready[:0], 0
	if refused != nil {
		return s.stop(refused)
	}
	return nil
}

// stop ends a request at trouble that passes: what is not committed is not accepted.
func (s *sending) stop(refused *reply.Reply) error {
	p := problemOf(refused)
	if s.accepted == 0 {
		return p
	}
	for i := range s.sent.Messages {
		if m := &s.sent.Messages[i]; m.Status == "" || m.ID == "" && m.Status != Refused {
			s.fail(i)
		}
	}
	p.Extra["messages"] = s.sent.Messages
	p.Detail += fmt.Sprintf(" (%d messages were accepted)", s.accepted)
	return p
}

// fail marks a message that was not reached, or not committed.
func (s *sending) fail(i int) {
	out := s.reached(i)
	out.Status = Failed
	for j := range out.Recipients {
		if r := &out.Recipients[j]; r.Status != Refused {
			r.Status = Failed
		}
	}
}

// reached is what is answered about a message, with all of its recipients if none was looked at.
func (s *sending) reached(i int) *SentMessage {
	out := &s.sent.Messages[i]
	if out.Recipients == nil {
		for _, box := range s.jobs[i].recipients() {
			out.Recipients = append(out.Recipients, SentRecipient{Address: string(box.Address)})
		}
	}
	return out
}

// finish commits the rest and gives the answer.
func (s *sending) finish(ctx context.Context) (*Sent, error) {
	if err := s.judge(ctx); err != nil {
		return nil, err
	}
	if s.sent.dry {
		for _, i := range s.ready {
			s.sent.Messages[i].Status = DryRun
		}
		return s.sent, nil
	}
	if s.accepted+len(s.ready) == 0 {
		return nil, s.nobody()
	}
	if len(s.ready) > 0 || s.x.claim != nil {
		if err := s.commit(ctx, true); err != nil {
			return nil, err
		}
	}
	return s.sent, nil
}

// nobody is the answer where every recipient was refused.
func (s *sending) nobody() error {
	var p *Problem
	if s.refused != nil {
		p = problemOf(s.refused)
	} else {
		p = Problemf(http.StatusUnprocessableEntity, "every recipient was refused")
		p.Reason, p.Extra = "recipients", map[string]any{}
	}
	for _, m := range s.sent.Messages {
		if m.Status == Failed {
			p.Status, p.RetryAfter = http.StatusServiceUnavailable, shortPause
		}
	}
	p.Title = "No message was accepted"
	p.Extra["messages"] = s.sent.Messages
	return p
}
