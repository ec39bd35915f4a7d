package messages

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/submission/intake"
)

// Receptions observes the messages that an import brings into the queue: Accepting is called before the commit of each,
// and then one of the others.
type Receptions interface {
	Accepting(*envelope.Message)
	Received(*envelope.Message)
	Refused(*envelope.Message)
	// Moving says where messages go whose recipients are about to be removed, and Moved forgets that of all but some.
	// It returns whose mail was removed meanwhile.
	Moving(where map[envelope.ID]string)
	Moved(later map[envelope.ID]bool) (tenants []string)
}

// Moves brings queued mail to another relay, and takes it from one; it implements api.Moves.
type Moves struct {
	*Messages
	Repeats *intake.Repeats // of requests that have a key
	// Receptions hears of messages that are imported.
	Receptions Receptions
	Version    string // of this program

	importing sync.Mutex // held by the import that is under way
	removing  sync.Mutex // by the removal of what was moved
}

const (
	// importKnown is how long a message that was imported is recognised when it comes again.
	importKnown = 30 * 24 * time.Hour
	// maxImport is how many messages a request can have: each has its place in the answer.
	maxImport = 10_000
	// importsAtOnce is how many octets of messages are committed at the same time, so that they share syncs. One that
	// is smaller than importOctets counts as that.
	importsAtOnce = 8 << 20
	importOctets  = 32 << 10
)

// Export implements api.Moves. The archive is written as it is read: it needs memory for one message.
func (m *Moves) Export(ctx context.Context, w io.Writer, f api.Filter) error {
	sel, err := m.selector(f, true)
	if err != nil {
		return err
	}
	out := m.archive(w, "")
	// clients move, not single messages
	if of := (api.Filter{Tenant: f.Tenant, State: f.State}); of.String() == f.String() {
		if err := m.exportKeys(out, f.Tenant); err != nil {
			return err
		}
	}
	damaged := 0
	left, err := m.Queue.Export(sel, func(x *queue.Exported) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return m.addTo(out, x, func(err error) {
			m.Log.Warn("a message is left out of an export", "id", x.Message.ID, "error", err)
			damaged += len(x.Recipients)
		})
	})
	if errors.Is(err, queue.ErrUnknown) {
		return api.NotFound(doneWith, "%v", err)
	}
	if err != nil {
		return err
	}
	return out.Close(exported.Summary{InDelivery: left.InDelivery, Ending: left.Ending,
		Unreadable: left.Unreadable + damaged})
}

// exportedOf converts a message for an archive.
func exportedOf(x *queue.Exported) *exported.Message {
	recipients := make([]exported.Recipient, len(x.Recipients))
	for i, index := range x.Recipients {
		s := &x.Standings[i]
		recipients[i] = exported.Recipient{Index: index, Attempts: s.Attempts, Next: s.Due, Held: s.Held,
			Warned: s.Warned, Site: s.Site}
		if s.Tried {
			recipients[i].Last = exported.AttemptOf(s.Last.Reply, s.Last.Via, s.Last.Detour)
		}
	}
	return exported.New(x.Message, recipients)
}

// Import implements api.Moves.
func (m *Moves) Import(ctx context.Context, r io.Reader, opts api.ImportOptions) (done api.Imported, err error) {
	if !m.importing.TryLock() {
		return done, &api.Error{Status: http.StatusConflict, Message: "another import is under way",
			Hint: "wait for its end"}
	}
	defer m.importing.Unlock()
	return m.take(ctx, r, &importer{opts: opts})
}

// take takes the messages of an archive. The caller has importing.
func (m *Moves) take(ctx context.Context, r io.Reader, im *importer) (done api.Imported, err error) {
	im.to, im.cfg, im.seen, im.nodes = m, m.Policy().Config, map[string]bool{}, map[string]bool{}
	im.commits, ctx = errgroup.WithContext(ctx)
	im.room = semaphore.NewWeighted(importsAtOnce)
	in := exported.NewReader(r, "archive")
	in.Keys = im.keys
	err = im.all(ctx, in)
	if failed := im.commits.Wait(); failed != nil {
		err = failed
	}
	if bad := (*exported.Error)(nil); errors.As(err, &bad) {
		err = api.Invalid(bad.Remedy, "%v", bad)
	}
	return im.done, err
}

// importer takes the messages of an archive.
type importer struct {
	to      *Moves
	opts    api.ImportOptions
	cfg     *config.Config
	seen    map[string]bool     // messages of this archive
	nodes   map[string]bool     // that messages come from
	commits *errgroup.Group     // under way; the first that fails ends the import
	room    *semaphore.Weighted // for commits
	only    string              // the relay that messages may come from; "": any
	look    bool                // only what was taken before counts, and nothing is taken

	mu   sync.Mutex // guards done
	done api.Imported
}

func (im *importer) all(ctx context.Context, in *exported.Reader) error {
	for {
		m, content, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = im.message(ctx, m, content)
		}
		if err != nil {
			return err
		}
	}
}

// message takes a message, or counts why not. An error ends the import.
func (im *importer) message(ctx context.Context, m *exported.Message, content *exported.Content) error {
	if len(im.seen) == maxImport {
		return &exported.Error{Place: "message " + m.ID,
			Problem: fmt.Sprintf("more than %d messages are in one request", maxImport),
			Remedy:  "send them in several archives, as 'mta queue import' does"}
	}
	name := m.Node + "/" + m.ID
	if im.seen[name] {
		return &exported.Error{Place: "message " + m.ID, Problem: "the archive has it twice",
			Remedy: "import archives that 'mta queue export' has written"}
	}
	im.seen[name] = true
	if im.only != "" && m.Node != im.only {
		return &exported.Error{Place: "message " + m.ID, Problem: fmt.Sprintf("it is of relay %.40q, not of %q", m.Node,
			im.only), Remedy: "give each relay another nodeid"}
	}
	p, err := im.plan(m)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		im.refuse(m, refused.why, refused.remedy)
		return nil
	}
	if err != nil || p == nil {
		return err
	}
	if im.look {
		if p.taken = nil; len(p.there) > 0 {
			im.took(m, p)
		}
		return nil
	}
	var draft *queue.Draft
	to, octets := io.Discard, min(max(m.Size, importOctets), importsAtOnce)
	if !im.opts.DryRun {
		if err := im.room.Acquire(ctx, octets); err != nil {
			return err
		}
		draft = im.to.Queue.Begin()
		to = draft
	}
	_, err = io.Copy(to, content)
	why := content.Wrong()
	if draft != nil && (err != nil || why != "") {
		draft.Abort()
		im.room.Release(octets)
	}
	switch {
	case err != nil:
		return err
	case why != "":
		im.refuse(m, "its content can't be queued: "+why, "the message was changed after the export: export it again")
		return nil
	case draft == nil:
		im.took(m, p)
		return nil
	}
	if err := im.from(m.Node); err != nil {
		draft.Abort()
		return err
	}
	draft.Continue(p.standings)
	im.commits.Go(func() error {
		defer im.room.Release(octets)
		return im.commit(m, p, draft)
	})
	return nil
}

// from notes whose mail comes here, before the first of it does.
func (im *importer) from(node string) error {
	if im.nodes[node] {
		return nil
	}
	im.nodes[node] = true
	err := KeyStore{im.to.Queue}.notePlaces(fromOthers, im.to.Now().Add(importKnown), node)
	if err != nil {
		err = api.Unavailable("look at the log, and import again", "noting that mail of node %s comes: %v", node, err)
	}
	return err
}

func (im *importer) commit(m *exported.Message, p *part, draft *queue.Draft) error {
	r := im.to
	b := &queue.Batch{
		Drafts: []*queue.Draft{draft}, Messages: []*envelope.Message{p.message},
		Key: p.key, Request: p.key, Last: true, Answer: p.answer(), Until: r.Now().Add(importKnown),
	}
	r.Receptions.Accepting(p.message)
	if _, err := r.Queue.CommitBatch(b); err != nil {
		r.Receptions.Refused(p.message)
		return api.Unavailable(
			"look at 'mta status' and the log, and import again: messages that were taken are not taken twice",
			"message %s: %v", m.ID, err)
	}
	r.Receptions.Received(p.message)
	im.took(m, p)
	return nil
}

// took counts what is durable, or in a dry run would be.
func (im *importer) took(m *exported.Message, p *part) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if len(p.taken) > 0 {
		im.done.Messages++
	}
	im.done.Recipients += len(p.taken)
	im.done.There += len(p.there)
	if !im.opts.DryRun {
		if len(p.taken) > 0 {
			p.ids = append(p.ids, p.message.ID.String())
		}
		im.done.Receipt = append(im.done.Receipt, api.MovedMessage{Node: m.Node, ID: m.ID,
			Recipients: sorted(p.there, p.taken), To: im.cfg.NodeID, As: p.ids})
	}
}

func sorted(lists ...[]int) []int {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return all
}

func (im *importer) refuse(m *exported.Message, why, remedy string) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.done.Refused = append(im.done.Refused,
		api.Refused{Node: m.Node, ID: m.ID, Recipients: len(m.Recipients), Why: why, Remedy: remedy})
}

// refusal is why a message can't be taken by this relay.
type refusal struct{ why, remedy string }

func (r *refusal) Error() string { return r.why }

// part is what of an exported message is taken: recipients that were left out of one export can come with the next.
type part struct {
	key          queue.Key
	of           [sha256.Size]byte // a sum of the content's
	message      *envelope.Message
	standings    []queue.Standing
	there, taken []int    // by their indexes at the other relay
	ids          []string // here, of parts that were taken before
}

// answer is kept with the key: which message it is a part of, and which recipients came with it.
func (p *part) answer() []byte {
	b := slices.Clone(p.of[:])
	for _, r := range p.taken {
		b = binary.AppendUvarint(b, uint64(r))
	}
	return b
}

// importKey names a part of a message of another relay, by its id there, so that it can be found by that. It needs no
// secret: only operators import, and keys of clients are sums with one.
func importKey(node, id string, n uint32) queue.Key {
	sum := sha256.Sum256(fmt.Appendf(nil, "mta queue import, message\x00%s\x00%s\x00%d", node, id, n))
	return queue.Key(sum[:len(queue.Key{})])
}

// formerKey is the name that earlier versions of this program gave a part, with the content in it.
func formerKey(m *exported.Message, n uint32) (k queue.Key) {
	h := sha256.New()
	fmt.Fprintf(h, "mta queue import\x00%s\x00%s\x00%s\x00%d", m.Node, m.ID, m.SHA256, n)
	copy(k[:], h.Sum(nil))
	return k
}

// knows notes what was taken with a part before: the recipients in b.
func (p *part) knows(k *queue.Keyed, b []byte, known map[int]bool) {
	if id := k.IDs[0]; id != 0 {
		p.ids = append(p.ids, id.String())
	}
	for len(b) > 0 {
		r, size := binary.Uvarint(b)
		if size <= 0 {
			return
		}
		known[int(r)], b = true, b[size:]
	}
}

// plan finds out what of a message must be taken; nil when all of it was taken before.
func (im *importer) plan(m *exported.Message) (*part, error) {
	full, err := m.Envelope()
	if err != nil {
		return nil, &refusal{err.Error(), "export it again; archives of queued mail are made by 'mta queue export'"}
	}
	if err := im.welcome(m); err != nil && !im.look {
		return nil, err
	}
	store := KeyStore{im.to.Queue}
	// two relays may have the same nodeid by mistake: the content tells their messages apart
	p := &part{message: full, of: sha256.Sum256([]byte(m.SHA256))}
	known := map[int]bool{}
	err = store.parts(func(n uint32) queue.Key { return formerKey(m, n) }, func(_ queue.Key, k *queue.Keyed) {
		if k != nil {
			p.knows(k, k.Answer, known)
		}
	})
	if err == nil {
		err = store.parts(func(n uint32) queue.Key { return importKey(m.Node, m.ID, n) },
			func(next queue.Key, k *queue.Keyed) {
				if p.key = next; k == nil {
					return
				}
				if b, of := bytes.CutPrefix(k.Answer, p.of[:]); of {
					p.knows(k, b, known)
				}
			})
	}
	if err != nil {
		return nil, api.Unavailable("look at the log, and import again",
			"finding out whether message %s was imported before: %v", m.ID, err)
	}
	accepted := m.Accepted
	if now := im.to.Now(); accepted.After(now) {
		accepted = now
	}
	full.Moved(m.Node, m.ID, accepted)
	recipients := full.Recipients
	full.Recipients = nil
	for i := range m.Recipients {
		r := &m.Recipients[i]
		if known[r.Index] {
			p.there = append(p.there, r.Index)
			continue
		}
		reply, via, detour := r.Last.Parts()
		p.taken = append(p.taken, r.Index)
		full.Recipients = append(full.Recipients, recipients[i])
		p.standings = append(p.standings, queue.Standing{
			Attempts: r.Attempts, Due: r.Next, Held: (r.Held || im.opts.Hold) && !im.opts.Release,
			Warned: r.Warned, Site: r.Site,
			Tried: r.Last != nil, Last: queue.Attempt{Reply: reply, Via: via, Detour: detour},
		})
	}
	if len(p.taken) == 0 {
		im.took(m, p)
		return nil, nil
	}
	return p, nil
}

// welcome refuses what this relay has no tenant or pool for, and what is in its queue already.
func (im *importer) welcome(m *exported.Message) error {
	const remedy = "add it to the configuration, reload, and import again: messages that were taken are not taken twice"
	if m.Tenant != "" && im.cfg.Tenant(string(m.Tenant)) == nil {
		return &refusal{fmt.Sprintf("there is no tenant %q here", string(m.Tenant)), remedy}
	}
	pools := []exported.Text{m.Pool}
	for i := range m.Recipients {
		if last := m.Recipients[i].Last; last != nil && last.Pool != pools[len(pools)-1] {
			pools = append(pools, last.Pool)
		}
	}
	for _, pool := range pools {
		if pool != "" && im.cfg.Pool(string(pool)) == nil {
			return &refusal{fmt.Sprintf("there is no pool %q here", string(pool)), remedy}
		}
	}
	if m.Node != im.cfg.NodeID {
		return nil
	}
	id, err := envelope.ParseID(m.ID)
	if err != nil {
		return &refusal{err.Error(), "export it again"}
	}
	it, err := im.to.Queue.Get(id)
	if err != nil {
		return nil // it has left, or can't be read
	}
	coming := make(map[int]string, len(m.Recipients))
	for i := range m.Recipients {
		coming[m.Recipients[i].Index] = m.Recipients[i].Address
	}
	for _, r := range it.Recipients {
		if address, ok := coming[r.Index]; ok && address == string(r.Address) {
			return &refusal{"it is in the queue of this relay, which it was exported from",
				"remove it there first: 'mta queue remove " + m.ID + "'"}
		}
	}
	return nil
}

// RemoveMoved implements api.Moves.
func (m *Moves) RemoveMoved(_ context.Context, c api.RemoveMoved) (done api.MovedRemoved, err error) {
	node := m.Policy().Config.NodeID
	m.removing.Lock()
	defer m.removing.Unlock()
	sel := queue.Selector{Counted: new(queue.Counted)}
	where, to := map[envelope.ID]string{}, map[string]bool{}
	for _, m := range c.Receipt {
		if m.Node != node {
			return done, api.Invalid("remove it at the relay that it was exported from",
				"the receipt is for mail of node %s, and this is node %s", m.Node, node)
		}
		id, err := envelope.ParseID(m.ID)
		if err != nil {
			return done, api.Invalid("use a receipt that 'mta queue import' has written", "%v", err)
		}
		sel.Counted.Add(id, m.Recipients)
		where[id], to[cmp.Or(m.To, m.Where())] = m.Where(), true
	}
	if !c.DryRun {
		m.Receptions.Moving(where)
	}
	if done.Recipients, err = m.Queue.Change(sel, queue.Transfer, c.DryRun); err != nil {
		return done, err
	}
	done.Count, done.Gone = done.Recipients, sel.Counted.Len()-done.Recipients
	if done.Recipients == 0 || c.DryRun {
		return done, nil
	}
	tenants, later := map[string]bool{}, map[envelope.ID]bool{}
	m.out(sel, func(it *queue.Item) {
		done.Later += m.onConnection(it, api.Remove)
		m.Dispatcher.Cancel(it.ID)
		tenants[it.Tenant], later[it.ID] = true, true
	})
	done.Later = min(done.Later, done.Recipients)
	for _, tenant := range m.Receptions.Moved(later) {
		tenants[tenant] = true
	}
	places := slices.Sorted(maps.Keys(to))
	for tenant := range tenants {
		err := KeyStore{m.Queue}.notePlaces(toOthers(tenant), m.Now().Add(importKnown), places...)
		if err != nil {
			m.Log.Warn("answers to cancels won't say that mail was moved", "tenant", tenant, "error", err)
		}
	}
	return done, nil
}
