package adopting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.org/mta/cluster/moving"
	"example.org/mta/dispatch"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/accounting/books"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/events"
	"example.org/mta/mta/replica"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/kept"
	"example.org/mta/operator/answer/messages"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/submission/intake"
)

const (
	look     = time.Second      // between two looks how far it is
	rests    = 20 * time.Second // for which nothing more could move, when an adoption ends
	apart    = time.Minute      // for which this node takes no part, likewise
	fails    = 3                // attempts of a stream in a row, likewise
	informs  = 3                // attempts to give the keys to all nodes
	informed = 6 * time.Second  // between two of these: a node is left alone for 5 s
	patience = 5 * time.Second  // with records that are to be written, requests that are to end, and another command
	ending   = 15 * time.Second // in which an adoption ends with the relay
	lost     = "requests that are sent again with their Idempotency-Key are taken twice"
)

// adoption is a directory whose mail moves.
type adoption struct {
	*directory
	dir   string
	small string // the folder of small files: the directory, or that of their copies
	of    *Adopter
	queue *queue.Queue
	mail  *watched
	mover *moving.Mover
	log   *accounting.Writer // nil where this relay has none, as the next
	sends *events.Streams

	ctx    context.Context
	cancel func()
	over   chan struct{} // closed when the directory is
	stays  []string      // what can't move, as it is known before any of it does, and at the end what has not
	// keyless are nodes that have not got the keys of requests. The next adoption would not ask them again.
	keyless []string

	mu   sync.Mutex // guards what follows
	last api.Adoption
}

// note has status return what is known now. It is not status itself, since it can wait for the file system.
func (x *adoption) note() api.Adoption {
	out := api.Adoption{Dir: x.dir, NodeID: x.cfg.NodeID, Running: true, Letters: x.letters,
		Moving: kept.Moving(int(x.node.Number), x.mover, x.queue.Stats().Queued)}
	out.Stays = slices.Concat(x.stays, x.keyless)
	if x.sends != nil {
		out.Events, out.Failed = x.events()
	}
	if x.restored.Copy != nil && x.restored.Ended() != nil {
		out.Failed = x.restored.Ended().Error()
	} else if !x.of.cfg.Cluster.Takes() {
		out.Failed = "this node takes no part in its cluster now: 'mta cluster status' has the reason"
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = out
	return out
}

// status returns how far it was at the last look, at most about a second ago.
func (x *adoption) status() api.Adoption {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last
}

// begin has mail move, once nobody else can have the directory, and it was accepted that some of it can't.
func (a *Adopter) begin(ctx context.Context, c api.Adopt, d *directory) (x *adoption, err error) {
	x = a.adoption(d, d.cfg.DataDir)
	x.over = make(chan struct{})
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	if x.stays, x.keyless, err = a.prepare(ctx, c, d); err != nil {
		return x, err
	}
	if x.mark.By == 0 {
		if err := a.cfg.Cluster.Fence(ctx, x.node, c.Dead); err != nil {
			return x, conflict("", "forgetting node %d: %v", x.node.Number, err)
		}
		x.mark.Began = a.cfg.Now().UTC()
	}
	if x.restored.dir == "" { // the copy that the database has of its queue would have all mail leave again
		if x.copy, err = a.cfg.Copies.End(ctx, replica.MarkOf(x.cfg), x.node.Number); err != nil {
			return x, refused(err)
		}
	}
	x.mark.By = int(a.cfg.Cluster.Number())
	if err := x.mark.Write(x.dir); err != nil {
		return x, api.Unavailable(remedy(err), "%v", err)
	}
	if err := x.open(false); err != nil {
		return x, err
	}
	x.mover.Drain()
	a.cfg.Log.Info("the mail of a dead node is adopted", "node", x.node.Number, "dir", x.dir, "recipients",
		x.queue.Stats().Queued)
	x.mover.Start()
	if x.sends != nil {
		x.sends.Start()
	}
	x.note()
	return x, nil
}

// adoption makes one of a directory, with small files in some folder, in which nothing is open.
func (a *Adopter) adoption(d *directory, small string) *adoption {
	x := &adoption{directory: d, dir: d.cfg.DataDir, small: small, of: a}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	return x
}

// prepare returns what can't move, if that was accepted, and gives the keys of clients' requests to all nodes. It reads
// the directory, and copies of the small files there, which are repaired when they are opened.
func (a *Adopter) prepare(ctx context.Context, c api.Adopt, d *directory) (stays, keyless []string, err error) {
	small, err := os.MkdirTemp("", "mta-adopting-")
	if err == nil {
		defer os.RemoveAll(small)
		err = copies(d.cfg.DataDir, small)
	}
	if err != nil {
		return nil, nil, api.Unavailable("the relay copies small files to "+os.TempDir(), "%v", err)
	}
	x := a.adoption(d, small)
	defer x.close()
	if err := x.open(true); err != nil {
		return nil, nil, err
	}
	if len(x.stays) > 0 && !c.Accept {
		return nil, nil, conflict("put it right; or --accept, and all else moves", "%s: this can't move: %s", x.dir,
			strings.Join(x.stays, "; "))
	}
	if x.mark.By != 0 {
		return x.stays, nil, nil
	}
	x.mover.Drain()
	without, err := x.inform(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(without) > 0 && !c.Accept {
		return nil, nil, conflict("see to that, or 'mta cluster forget' a node that is gone for good; or "+
			"--accept: what a client sends again there is taken twice",
			"the Idempotency-Keys of clients' requests can't be given to all nodes: %s", strings.Join(without, "; "))
	}
	for _, w := range without {
		keyless = append(keyless, "Idempotency-Keys of clients' requests for "+w)
	}
	return x.stays, keyless, nil
}

// Small files of a data directory, beside that of the mover.
const (
	streamsFile = "streams.db"
	secretFile  = "idempotency.key"
	clusterFile = "cluster"
)

// copies copies the small files that open opens.
func copies(from, to string) error {
	all := []string{streamsFile, secretFile, secretFile + smallfile.CopySuffix, clusterFile + "-moving"}
	for _, name := range all {
		text, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// open opens what the directory has, or only what it takes to find out what stays: then nothing in it changes. Nothing
// leaves it yet.
func (x *adoption) open(only bool) (err error) {
	a, d := x.of, x.directory
	out := a.cfg.Log.With("adopted", x.dir)
	defer func() {
		if errors.Is(err, syscall.EROFS) {
			err = conflict(remedy(err), "%s: %v", x.dir, err)
		} else if err != nil {
			err = conflict("'mta queue fsck "+x.dir+"' names what is damaged; the log of this relay may have more",
				"%s: %v", x.dir, err)
		}
	}()
	policy := wiring.New(d.cfg)
	book := books.Config{Policy: func() *wiring.Policy { return policy }, Classes: a.cfg.Classes, Now: a.cfg.Now}
	lacks, readable, err := x.streams()
	if err != nil {
		return fmt.Errorf("streams: %w", err)
	}
	if readable && !only {
		if x.log, err = accounting.Open(accounting.Config{Dir: d.cfg.Accounting.Path, NodeID: d.cfg.NodeID,
			Now: a.cfg.Now, Log: out}); err != nil {
			return fmt.Errorf("accounting log: %w", err)
		}
		book.Log = x.log
	}
	accountant := books.New(book)
	bounced := dispatch.GivenUp()
	if x.queue, err = queue.Open(queue.Config{
		Dir: datadir.Queue(d.cfg), FS: x.fs(only), ReadOnly: only, Log: out, Now: a.cfg.Now,
		Format: d.formats.Of(store.Format.Name).Number, SegmentSize: int64(d.cfg.Queue.SegmentSize),
		LargeBody: config.LargeBody, MinFree: 1, IdempotencyKeys: d.cfg.Queue.IdempotencyKeys, Leaving: &bounced,
		OnRemoved: accountant.Removed, OnUnreadable: accountant.Unreadable,
	}); err != nil {
		return err
	}
	if x.log != nil {
		if latest, err := accounting.LatestReceptions(x.ctx, d.cfg.Accounting.Path, a.cfg.Now()); err != nil {
			out.Warn("it is not known which messages of a dead node have no Reception", "error", err)
		} else {
			accountant.Complete(x.queue, latest)
		}
		if err = x.openStreams(); err != nil {
			return fmt.Errorf("streams: %w", err)
		}
	}
	if only {
		x.stays = append(x.damage(), lacks...)
	}
	secret, err := smallfile.Secret{Path: filepath.Join(x.small, secretFile), Loss: lost, Now: a.cfg.Now,
		Log: out}.Secret()
	if err != nil {
		return err
	}
	x.mail = watch(messages.Moving{Moves: &messages.Moves{
		Messages: &messages.Messages{Policy: book.Policy, Now: a.cfg.Now, Log: out, Queue: x.queue},
		Repeats:  intake.NewRepeats(secret, messages.KeyStore{Queue: x.queue}), Receptions: accountant,
		Version: a.cfg.Version,
	}}, x.frozen, a.cfg.Now)
	cfg := *d.cfg
	cfg.Cluster.Path = filepath.Join(x.small, clusterFile)
	x.mover, err = a.cfg.Cluster.Mover(d.node, &cfg, x.mail)
	return err
}

// fs is the file system of the queue: that of its copy, if it has one and is to be changed.
func (x *adoption) fs(only bool) vfs.FS {
	if x.restored.Copy == nil || only {
		return x.held()
	}
	return x.restored.Under(nil)
}

// frozen reports whether nothing may leave now, since its copy would not show it.
func (x *adoption) frozen() bool { return x.restored.Copy != nil && x.restored.Frozen()() }

// openStreams makes those of this relay that have not sent all of the dead node's log.
func (x *adoption) openStreams() (err error) {
	x.sends, err = events.Open(events.Config{Log: x.log, Path: filepath.Join(x.small, streamsFile),
		NodeID: x.cfg.NodeID, Now: x.of.cfg.Now, Out: x.of.cfg.Log})
	if err != nil {
		return err
	}
	var known []events.Settings
	for _, s := range x.of.cfg.Streams(x.cfg.NodeID) {
		if x.sends.Known(s.Name) { // another would begin with the oldest event
			known = append(known, s)
		}
	}
	return x.sends.Set(known)
}

// inform gives the keys to all nodes, since those in the engine end with the dead one. It returns who has not got them
// after some attempts, and why.
func (x *adoption) inform(ctx context.Context) (without []string, err error) {
	for try := 1; ; try++ {
		without = nil
		if x.mover.Inform(ctx); ctx.Err() != nil {
			return nil, api.Unavailable("give the command again", "it was interrupted before any mail moved")
		}
		if s := x.queue.Stats(); s.IdempotencyKeys+s.ImportKeys == 0 {
			return nil, nil
		}
		for _, n := range x.mover.Status().Nodes {
			if n.Why != "" && !x.of.cfg.Cluster.Gone(n.Node) {
				without = append(without, fmt.Sprintf("node %d: %s", n.Node, n.Why))
			}
		}
		if len(without) == 0 || try == informs {
			return without, nil
		}
		select {
		case <-time.After(informed):
		case <-ctx.Done():
		}
	}
}

// run waits until nothing more can leave the directory, and closes it.
func (x *adoption) run() {
	defer close(x.over)
	moved := 0
	empty := x.await(func() (done bool, stuck time.Duration) {
		s := x.mover.Status()
		switch {
		case x.restored.Copy != nil && x.restored.Ended() != nil: // another node has it
			stuck = look
		case !x.of.cfg.Cluster.Takes():
			stuck = apart
		case x.frozen(): // the database is away
		case x.mail.leaving(): // also while the last pass, which has found nobody, counts yet
		case s.Rests || s.Busy > 0 && s.Recipients == moved: // nothing is in delivery here: what is busy never leaves
			stuck = rests
		}
		moved = s.Recipients
		return x.queue.Stats().Queued == 0 && s.Waiting == 0, stuck
	})
	x.mover.Close()
	if x.sends != nil && x.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(x.ctx, patience)
		_ = x.log.Flush(ctx) // the records of what has moved
		cancel()
		empty = x.await(func() (done bool, stuck time.Duration) {
			n, why := x.events()
			if why != "" {
				stuck = rests
			}
			return n == 0 && why == "", stuck
		}) && empty
	}
	empty = empty && len(x.stays) == 0
	if x.ctx.Err() == nil {
		x.stays = append(x.stays, x.rest()...)
	}
	last := x.note()
	err := x.close()
	if x.restored.dir != "" {
		err = errors.Join(err, x.restored.close())
	}
	err = errors.Join(err, x.lock.Close())
	if err == nil && empty {
		x.mark.Ended = x.of.cfg.Now().UTC()
		err = x.mark.Write(x.dir)
	}
	switch {
	case err != nil || !empty || x.copy == 0:
	case x.restored.dir != "":
		err = x.of.discard(x.of.ctx, x.copy, x.node.Number, x.dir)
	default:
		err = x.of.cfg.Copies.Discard(x.of.ctx, x.copy, x.node.Number)
	}
	if err != nil {
		x.mark.Ended, last.Failed = time.Time{}, cmp.Or(last.Failed, err.Error())
		x.of.cfg.Log.Error("closing the directory of a dead node", "dir", x.dir, "error", err)
	}
	last.Running, last.Ended = false, x.mark.Ended
	x.mu.Lock()
	x.last = last
	x.mu.Unlock()
	x.of.cfg.Log.Info("the adoption of a dead node's mail has ended", "node", x.node.Number, "dir", x.dir,
		"messages", last.Moving.Messages, "left", last.Moving.Left, "events_left", last.Events)
}

// await looks until it is done, or stuck for as long as state returns, where that is not 0; it reports the former.
func (x *adoption) await(state func() (done bool, stuck time.Duration)) bool {
	var since time.Time
	for {
		x.note()
		done, stuck := state()
		switch now := time.Now(); {
		case done:
			return true
		case stuck == 0:
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= stuck:
			return false
		}
		select {
		case <-time.After(look):
		case <-x.ctx.Done():
			return false
		}
	}
}

// events returns about how many have yet to be sent, and why they are not.
func (x *adoption) events() (n int64, why string) {
	for _, s := range x.sends.List() {
		n += max(s.LagEvents, min(s.LagBytes, 1))
		switch {
		case s.LagEvents+s.LagBytes == 0:
		case s.State == events.Paused:
			why = fmt.Sprintf("the stream %s is paused", s.Name)
		case s.Tries >= fails:
			why = fmt.Sprintf("the stream %s: %s", s.Name, s.LastError)
		}
	}
	return n, why
}

func (x *adoption) running() bool {
	select {
	case <-x.over:
		return false
	default:
		return true
	}
}

// close closes what is open.
func (x *adoption) close() error {
	x.cancel()
	var errs []error
	if x.mover != nil {
		errs = append(errs, x.mover.Close())
	}
	if x.queue != nil {
		errs = append(errs, x.queue.Close())
	}
	if x.sends != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		errs = append(errs, x.sends.Close(ctx))
		cancel()
	}
	if x.log != nil {
		errs = append(errs, x.log.Close())
	}
	return errors.Join(errs...)
}
