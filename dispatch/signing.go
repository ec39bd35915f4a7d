package dispatch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/dkim"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
)

// signing signs messages that are about to leave, on as many goroutines as there are processors. A
// message's signature is kept for a while, for its other jobs; a later attempt signs it anew, with the key
// of that day. Goroutines are there while there is work only.
type signing struct {
	body              func(envelope.ID) (io.ReadCloser, error)
	now               func() time.Time
	workers           int
	failing           *faultlog.Kind
	pending           budget // messages that wait for their signatures
	running           sync.WaitGroup
	counts            SigningCounts
	waiting, withheld atomic.Pointer[noted] // the last that was refused, and that no block may sign; nil: none

	mu     sync.Mutex // guards the rest
	busy   int        // goroutines
	line   []*signature
	recent map[signed]*signature
	older  map[signed]*signature // what was recent before recent was full
}

// signed is what a signature is good for.
type signed struct {
	id        envelope.ID
	recipient int // that the content names, see top
}

const (
	maxPending = 256  // messages that wait for their signatures, before no more are taken from the queue
	maxRecent  = 2048 // signatures that are kept, twice; each has some 600 octets
)

// SigningCounts are about messages, each counted once however many jobs it makes, unless its recipients get
// different ones.
type SigningCounts struct{ Signed, Unsigned, Failed atomic.Int64 }

// signature is what is added to a message as it leaves, in the making or made.
type signature struct {
	message *envelope.Message // nil when made
	top     top
	policy  *wiring.Policy
	waiting []func(*signature) // nil when made

	fields  []byte // to be put in front of the message, with those of top
	content error  // that could not be read
	refused error  // why the message may not leave: it can't be signed
}

// noted is what alarms have to report of a message.
type noted struct {
	at  time.Time
	why string
}

const (
	shownWaiting  = 3 * sourceRetry // longer than mail waits for another try to sign it
	shownWithheld = time.Hour
)

// trouble returns which mail waits for its signature, and which has left unsigned since no block may sign it; "" when
// there is none.
func (s *signing) trouble() (waits, withheld string) {
	if last := s.waiting.Load(); last != nil && s.now().Sub(last.at) <= shownWaiting {
		waits = fmt.Sprintf(
			"mail that can't be signed with DKIM waits until it expires, lastly %s; mta_dkim_failures_total counts "+
				"the tries", last.why)
	}
	if last := s.withheld.Load(); last != nil && s.now().Sub(last.at) <= shownWithheld {
		withheld = fmt.Sprintf("mail leaves without the signature of a dkim block, lastly %s", last.why)
	}
	return waits, withheld
}

func newSigning(body func(envelope.ID) (io.ReadCloser, error), now func() time.Time, log *slog.Logger) *signing {
	s := &signing{
		body: body, now: now, workers: runtime.GOMAXPROCS(0),
		recent: make(map[signed]*signature),
		failing: faultlog.New(log, now, slog.LevelError, "mail can't be signed with DKIM",
			"mail is signed with DKIM again"),
	}
	s.pending.limit = maxPending
	return s
}

// sign calls then with the signature of a message that gets the fields of top: at once when it is known, else from
// another goroutine.
func (s *signing) sign(pol *wiring.Policy, m *envelope.Message, top top, then func(*signature)) {
	s.mu.Lock()
	of := signed{m.ID, top.recipient}
	sig := s.known(of, pol)
	if sig != nil && sig.message == nil {
		s.mu.Unlock()
		then(sig)
		return
	}
	if sig != nil {
		sig.waiting = append(sig.waiting, then)
		s.mu.Unlock()
		return
	}
	sig = &signature{message: m, top: top, policy: pol, waiting: []func(*signature){then}}
	s.remember(of, sig)
	s.line = append(s.line, sig)
	s.pending.add(1)
	if s.busy < s.workers {
		s.busy++
		s.running.Go(s.work)
	}
	s.mu.Unlock()
}

// known gives what a message has, by the configuration of pol. s.mu is held.
func (s *signing) known(of signed, pol *wiring.Policy) *signature {
	sig := s.recent[of]
	if sig == nil {
		sig = s.older[of]
	}
	if sig == nil || sig.policy != pol {
		return nil
	}
	return sig
}

func (s *signing) remember(of signed, sig *signature) {
	if len(s.recent) >= maxRecent {
		s.older, s.recent = s.recent, make(map[signed]*signature, maxRecent)
	}
	s.recent[of] = sig
}

// forget leaves a message that was not signed to be tried anew. s.mu is held.
func (s *signing) forget(of signed, sig *signature) {
	for _, kept := range []map[signed]*signature{s.recent, s.older} {
		if kept[of] == sig {
			delete(kept, of)
		}
	}
}

// has reports whether a message is being signed.
func (s *signing) has(id envelope.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kept := range []map[signed]*signature{s.recent, s.older} {
		for of, sig := range kept {
			if of.id == id && sig.message != nil {
				return true
			}
		}
	}
	return false
}

// work signs what is in line until nothing is.
func (s *signing) work() {
	for {
		s.mu.Lock()
		if len(s.line) == 0 {
			s.busy--
			s.line = nil
			s.mu.Unlock()
			return
		}
		sig := s.line[0]
		s.line = s.line[1:]
		s.mu.Unlock()

		m := sig.message
		made := s.make(sig.policy, m, &sig.top)
		s.mu.Lock()
		waiting := sig.waiting
		sig.fields, sig.content, sig.refused, sig.message, sig.waiting = made.fields, made.content,
			made.refused, nil, nil
		if sig.content != nil || sig.refused != nil {
			s.forget(signed{m.ID, sig.top.recipient}, sig)
		}
		s.mu.Unlock()
		s.pending.done(1)
		for _, then := range waiting {
			then(sig)
		}
	}
}

// make adds the fields of top to a message, and signs it by all blocks that fit it.
func (s *signing) make(pol *wiring.Policy, m *envelope.Message, top *top) signature {
	content, err := s.body(m.ID)
	if err != nil {
		return signature{content: err}
	}
	defer content.Close()
	added := top.fields
	var authors []string
	message, err := dkim.Read(content)
	if err == nil {
		if len(top.unsubscribe) > 0 && !message.Has("List-Unsubscribe") {
			added = slices.Concat(top.fields, top.unsubscribe)
		}
		if err = message.Add(added); err == nil {
			authors, err = message.From()
		}
	}
	if err != nil && !errors.Is(err, dkim.ErrMessage) {
		return signature{content: err}
	}
	stranger := ""
	if err == nil && !m.Generated() {
		stranger = pol.Config.Stranger(m.Tenant, authors...)
	}
	blocks, keys := s.signers(pol, m, authors, stranger)
	s.noteWithheld(pol, m, authors, blocks, stranger)
	if len(keys) == 0 {
		s.counts.Unsigned.Add(1)
		return signature{fields: added}
	}
	var fields []byte
	if err == nil {
		fields, err = message.Sign(keys, s.now())
	}
	if err == nil {
		s.counts.Signed.Add(1)
		s.failing.Well()
		return signature{fields: append(fields, added...)}
	}
	s.counts.Failed.Add(1)
	wait := config.Waits(blocks) && !m.Generated() // a report would have nobody to return to
	s.failing.Failed("DKIM", "message", m.ID, "tenant", m.Tenant, "waits", wait, "error", err)
	if !wait {
		return signature{fields: added}
	}
	s.waiting.Store(&noted{s.now(), fmt.Sprintf("message %s of tenant %q: %v", m.ID, m.Tenant, err)})
	return signature{refused: fmt.Errorf("DKIM: %w", err)}
}

// signers gives the blocks that fit a message, and their keys of today. A report is our own mail, whosever message it
// is about. What is forwarded is a stranger's, whatever its From: a signature would prove that. Mail of several
// authors, one of whom is a stranger to the tenant, is signed for none of them: DMARC asks for each (RFC 7489, 6.6.1).
func (s *signing) signers(pol *wiring.Policy, m *envelope.Message, authors []string,
	stranger string) (blocks []*config.DKIM, keys []*dkim.Key) {
	if m.Forwarded() {
		return nil, nil
	}
	if m.Generated() {
		blocks = pol.Config.DKIMFor("", authors...)
	}
	if len(blocks) == 0 {
		blocks = pol.Config.DKIMFor(m.Tenant, authors...)
	}
	if stranger != "" {
		blocks = slices.DeleteFunc(blocks, func(d *config.DKIM) bool { return slices.ContainsFunc(authors, d.Aligned) })
	}
	now := s.now()
	for _, d := range blocks {
		for _, k := range d.Signing(now) {
			keys = append(keys, k.Key())
		}
	}
	return blocks, keys
}

// noteWithheld notes a message that leaves unsigned although there are blocks for it, or, where other blocks sign it,
// without the signature that DMARC needs.
func (s *signing) noteWithheld(pol *wiring.Policy, m *envelope.Message, authors []string, signing []*config.DKIM,
	stranger string) {
	if stranger != "" {
		s.withheld.Store(&noted{s.now(), fmt.Sprintf("message %s of tenant %q from %s: the tenant may not write as %s",
			m.ID, m.Tenant, strings.Join(authors, ", "), stranger)})
		return
	}
	lacks := func(d *config.DKIM) bool { return len(signing) == 0 || d.Aligned(authors[0]) }
	// aligned ones come first
	if m.Generated() || len(signing) > 0 && (len(authors) == 0 || signing[0].Aligned(authors[0])) {
		return
	}
	blocks := pol.Config.Withheld(m.Tenant, authors...)
	if i := slices.IndexFunc(blocks, lacks); i >= 0 {
		s.withheld.Store(&noted{s.now(),
			fmt.Sprintf("message %s of tenant %q from %s, for dkim %q: the tenant's senders don't cover the block's "+
				"domain, and its tenants don't name the tenant",
				m.ID, m.Tenant, strings.Join(authors, ", "), blocks[i].Name)})
	}
}

// wait waits for what is being signed. Nothing may be added any more.
func (s *signing) wait() error {
	s.running.Wait()
	return nil
}

// sign hands a job to delivery, which has space for it, when its message is signed.
func (d *Dispatcher) sign(m *envelope.Message, job *delivery.Job, recipients []queue.Pending, top top, c *choice) {
	d.signing.sign(c.by.policy, m, top, func(sig *signature) {
		if sig.refused != nil {
			c.drop()
			d.Delivery.Release(job)
			d.postpone(m, job.Route, recipients, reply.Local(451, reply.Enhanced{4, 7, 5}, "DKIM", "%s", sig.refused))
			return
		}
		sig.addTo(job)
		d.hand(m, job)
		d.recall(m, c.by)
	})
}

// addTo puts the fields in front of what a job sends.
func (sig *signature) addTo(job *delivery.Job) {
	if sig.content != nil {
		job.Body = func() (io.ReadCloser, error) { return nil, sig.content }
		return
	}
	if len(sig.fields) == 0 {
		return
	}
	accepted, body, done := job.Message, job.Body, job.Done
	larger := *accepted
	larger.Size += int64(len(sig.fields))
	job.Message = &larger
	job.Body = func() (io.ReadCloser, error) {
		content, err := body()
		if err != nil {
			return nil, err
		}
		return signedContent{io.MultiReader(bytes.NewReader(sig.fields), content), content}, nil
	}
	job.Done = func(j *delivery.Job, results []delivery.Result) {
		back := *j
		back.Message = accepted
		done(&back, results)
	}
}

// signedContent is a content behind its signatures.
type signedContent struct {
	io.Reader
	io.Closer
}
