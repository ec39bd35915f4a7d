package dispatch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/dkim"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/trouble"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
)

// signing signs messages that are about to leave, on as many goroutines as there are processors. A
// message's signature is kept for a while, for its other jobs; a later attempt signs it anew, with the key
// of that day. Goroutines are there while there is work only.
type signing struct {
	body    func(envelope.ID) (io.ReadCloser, error)
	now     func() time.Time
	workers int
	failing *trouble.Kind
	pending budget // messages that wait for their signatures
	running sync.WaitGroup
	counts  SigningCounts

	mu     sync.Mutex // guards the rest
	busy   int        // goroutines
	line   []*signature
	recent map[envelope.ID]*signature
	older  map[envelope.ID]*signature // what was recent before recent was full
}

const (
	maxPending = 256  // messages that wait for their signatures, before no more are taken from the queue
	maxRecent  = 2048 // signatures that are kept, twice; each has some 600 octets
)

// SigningCounts are about messages, each counted once however many jobs it makes.
type SigningCounts struct{ Signed, Unsigned, Failed atomic.Int64 }

// signature is what DKIM adds to a message, in the making or made.
type signature struct {
	message *envelope.Message // nil when made
	policy  *wiring.Policy
	waiting []func(*signature) // nil when made

	fields  []byte // to be put in front of the message; none when no key signs it
	content error  // that could not be read
	refused error  // why the message may not leave: it can't be signed
}

func newSigning(body func(envelope.ID) (io.ReadCloser, error), now func() time.Time, log *slog.Logger) *signing {
	s := &signing{
		body: body, now: now, workers: runtime.GOMAXPROCS(0),
		recent:  make(map[envelope.ID]*signature),
		failing: trouble.New(log, now, slog.LevelError, "mail can't be signed with DKIM", "mail is signed with DKIM again"),
	}
	s.pending.limit = maxPending
	return s
}

// sign calls then with a message's signature: at once when it is known, else from another goroutine.
func (s *signing) sign(pol *wiring.Policy, m *envelope.Message, then func(*signature)) {
	s.mu.Lock()
	sig := s.known(m.ID, pol)
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
	sig = &signature{message: m, policy: pol, waiting: []func(*signature){then}}
	s.remember(m.ID, sig)
	s.line = append(s.line, sig)
	s.pending.add(1)
	if s.busy < s.workers {
		s.busy++
		s.running.Go(s.work)
	}
	s.mu.Unlock()
}

// known gives what a message has, by the configuration of pol. s.mu is held.
func (s *signing) known(id envelope.ID, pol *wiring.Policy) *signature {
	sig := s.recent[id]
	if sig == nil {
		sig = s.older[id]
	}
	if sig == nil || sig.policy != pol {
		return nil
	}
	return sig
}

func (s *signing) remember(id envelope.ID, sig *signature) {
	if len(s.recent) >= maxRecent {
		s.older, s.recent = s.recent, make(map[envelope.ID]*signature, maxRecent)
	}
	s.recent[id] = sig
}

// forget leaves a message that was not signed to be tried anew. s.mu is held.
func (s *signing) forget(id envelope.ID, sig *signature) {
	for _, kept := range []map[envelope.ID]*signature{s.recent, s.older} {
		if kept[id] == sig {
			delete(kept, id)
		}
	}
}

// has reports whether a message is being signed.
func (s *signing) has(id envelope.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kept := range []map[envelope.ID]*signature{s.recent, s.older} {
		if sig := kept[id]; sig != nil && sig.message != nil {
			return true
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
		made := s.make(sig.policy, m)
		s.mu.Lock()
		waiting := sig.waiting
		sig.fields, sig.content, sig.refused, sig.message, sig.waiting = made.fields, made.content, made.refused, nil, nil
		if sig.content != nil || sig.refused != nil {
			s.forget(m.ID, sig)
		}
		s.mu.Unlock()
		s.pending.done(1)
		for _, then := range waiting {
			then(sig)
		}
	}
}

// make signs a message by all blocks that fit it.
func (s *signing) make(pol *wiring.Policy, m *envelope.Message) signature {
	content, err := s.body(m.ID)
	if err != nil {
		return signature{content: err}
	}
	defer content.Close()
	from := ""
	message, err := dkim.Read(content)
	if err == nil {
		from, err = message.From()
	}
	if err != nil && !errors.Is(err, dkim.ErrMessage) {
		return signature{content: err}
	}
	blocks := pol.Config.DKIMFor(m.Tenant, from)
	now := s.now()
	var keys []*dkim.Key
	for _, d := range blocks {
		for _, k := range d.Signing(now) {
			keys = append(keys, k.Key())
		}
	}
	if len(keys) == 0 {
		s.counts.Unsigned.Add(1)
		return signature{}
	}
	var fields []byte
	if err == nil {
		fields, err = message.Sign(keys, now)
	}
	if err == nil {
		s.counts.Signed.Add(1)
		s.failing.Well()
		return signature{fields: fields}
	}
	s.counts.Failed.Add(1)
	wait := slices.ContainsFunc(blocks, func(d *config.DKIM) bool { return d.OnFailure == "defer" })
	s.failing.Failed("DKIM", "message", m.ID, "tenant", m.Tenant, "waits", wait, "error", err)
	if !wait {
		return signature{}
	}
	return signature{refused: fmt.Errorf("DKIM: %w", err)}
}

// wait waits for what is being signed. Nothing may be added any more.
func (s *signing) wait() error {
	s.running.Wait()
	return nil
}

// sign hands a job to delivery, which has space for it, when its message is signed.
func (d *Dispatcher) sign(m *envelope.Message, job *delivery.Job, recipients []queue.Pending, c *choice) {
	d.signing.sign(c.by.policy, m, func(sig *signature) {
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

// addTo puts the signature in front of what a job sends.
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
