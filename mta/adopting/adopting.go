// Package adopting has the mail of a dead node move to the living ones, from the data directory that the node has left:
// the queue by package moving, as in a drain, and what streams have yet to send of its accounting log.
//
// The order is what makes it safe. The lock of the queue keeps all processes away from the directory. All nodes get the
// keys of clients' requests, since those in the engine end with the node. The node is forgotten: a process with a copy
// of the directory takes no part. Until then the node may be alive elsewhere, and no octet of the directory changes.
// The directory is marked, so that no relay starts on it. Only then it is opened for writing, and mail moves.
// Whatever ends in between, the next call goes on from there: all that is known of an adoption is in the directory.
package adopting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/mta/bounce"
	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/moving"
	"example.org/mta/cluster/spool"
	"example.org/mta/internal/format"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/events"
	"example.org/mta/operator/api"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/submission/maildrop"
)

// Cluster is what is asked of this relay's part in the cluster.
type Cluster interface {
	Takes() bool
	// Hears reports whether the database acknowledges what this node writes.
	Hears() bool
	Number() uint16
	// Dead and Fence are those of membership.Membership.
	Dead(ctx context.Context, path string, off bool) (membership.Dead, error)
	Fence(ctx context.Context, d membership.Dead, off bool) error
	// Gone reports whether a node is no member any more.
	Gone(node uint16) bool
	// Leave is Gone of membership.Membership.
	Leave(ctx context.Context, node uint16, off bool, incarnation uint64) (func(path string) error, uint64, error)
	// Mover makes what moves the mail of a dead node, of whose directory cfg is.
	Mover(d membership.Dead, cfg *config.Config, mail moving.Mail) (*moving.Mover, error)
}

// Copies are those of queues, in the database; package replica has what the methods do.
type Copies interface {
	Find(ctx context.Context, node uint16, off bool) (spool.Status, error)
	Others(ctx context.Context, dirs string) ([]spool.Status, error)
	Hold(ctx context.Context, l spool.Status) error
	Close() error
	Take(ctx context.Context, l spool.Status, incarnation uint64, dir string) (Copy, error)
	Look(ctx context.Context, l spool.Status, dir string) error
	Discard(ctx context.Context, log uint64, node uint16) error
	Secret(l spool.Status, path string) ([]byte, error)
	End(ctx context.Context, mark string, node uint16) (log uint64, err error)
}

// Config is an Adopter's.
type Config struct {
	Cluster Cluster // nil without one
	Copies  Copies
	InForce func() *config.Config                 // of this relay
	Streams func(nodeid string) []events.Settings // those of this relay, for events of another one
	Drains  func() bool                           // this relay takes no new mail for an operator
	Classes *bounce.Classifier
	Version string
	Now     func() time.Time
	Log     *slog.Logger
}

// Adopter adopts the mail of one dead node at a time; it implements api.Adopters. It is safe for concurrent use.
//
// Goroutines: one while an adoption goes on, and those of its parts; they end with Close.
type Adopter struct {
	cfg  Config
	ctx  context.Context // ends with Close
	stop func()

	turn chan struct{} // has room while nobody looks at a directory

	mu     sync.Mutex // guards what follows; not held over I/O
	latest *adoption  // nil before the first
	failed string     // why a queue is not taken over, as Trouble has it
}

// New makes an Adopter.
func New(cfg Config) *Adopter {
	a := &Adopter{cfg: cfg, turn: make(chan struct{}, 1)}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// Close ends an adoption that goes on, as far as it is. A file system that hangs holds it up for 15 s at most: what it
// has is as after a kill then.
func (a *Adopter) Close() error {
	a.stop()
	late := time.NewTimer(ending)
	defer late.Stop()
	hangs := errors.New("the directory of a dead node does not answer: it is left open")
	select {
	case a.turn <- struct{}{}: // for good
	case <-late.C:
		return hangs
	}
	if latest := a.newest(); latest != nil {
		latest.cancel()
		select {
		case <-latest.over:
		case <-late.C:
			return hangs
		}
	}
	return nil
}

func (a *Adopter) newest() *adoption {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.latest
}

// interrupted is the error of a command that was, and of one that the relay's end has overtaken.
var interrupted = api.Unavailable("give the command again", "it was interrupted")

func conflict(hint, format string, args ...any) error {
	return &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Adoption implements api.Adopters.
func (a *Adopter) Adoption(context.Context) (api.Adoption, error) {
	latest := a.newest()
	if latest == nil {
		return api.Adoption{}, api.NotFound("begin with 'mta cluster adopt DIR'",
			"this relay has adopted no mail since it was started")
	}
	return latest.status(), nil
}

// Adopt implements api.Adopters.
func (a *Adopter) Adopt(ctx context.Context, c api.Adopt) (done api.Adopted, err error) {
	return a.request(ctx, c, spool.Status{})
}

// request is Adopt. l is the log to take, if that has been found.
func (a *Adopter) request(ctx context.Context, c api.Adopt, l spool.Status) (done api.Adopted, err error) {
	switch {
	case a.cfg.Cluster == nil:
		return done, conflict("'mta restore' and 'mta queue export' are for single relays",
			"this relay is in no cluster: its configuration has no cluster block")
	case !a.cfg.Cluster.Takes():
		return done, conflict("'mta cluster status' has the reason", "this node takes no part in its cluster now")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return done, interrupted
	case <-late.C:
		return done, conflict("wait for its end: a large queue, and a file system that does not answer, take long",
			"a directory is being looked at for another command")
	}
	type answer struct {
		done api.Adopted
		err  error
	}
	ended := make(chan answer, 1)
	go func() {
		defer func() { <-a.turn }()
		done, err := a.adopt(ctx, c, l)
		ended <- answer{done, err}
	}()
	select {
	case is := <-ended:
		return is.done, is.err
	case <-ctx.Done(): // a file system that hangs holds up that goroutine alone
		return done, interrupted
	}
}

// adopt is request for one caller at a time.
func (a *Adopter) adopt(ctx context.Context, c api.Adopt, l spool.Status) (done api.Adopted, err error) {
	if latest := a.newest(); latest != nil && latest.running() {
		done.Adoption = latest.status()
		if same(latest.dir, c.Dir) || c.Node != 0 && c.Node == int(latest.node.Number) {
			return done, nil
		}
		return done, conflict("wait for its end", "the mail in %s is being adopted", latest.dir)
	}
	var r restored
	kept := false
	if c.Node != 0 {
		var ended time.Time
		if r, ended, err = a.restore(ctx, c, l); err != nil || !ended.IsZero() {
			done.Adoption = api.Adoption{Ended: ended, Moving: api.Moving{Node: c.Node}}
			return done, err
		}
		c.Dir = r.dir
		defer func() {
			if !kept {
				r.close()
			}
		}()
	}
	d, err := a.look(ctx, c)
	if err != nil {
		return done, err
	}
	defer func() {
		if !kept {
			d.lock.Close()
		}
	}()
	if !d.mark.Ended.IsZero() {
		done.Adoption = api.Adoption{Dir: d.cfg.DataDir, NodeID: d.cfg.NodeID, Ended: d.mark.Ended,
			Moving: api.Moving{Node: int(d.node.Number)}}
		return done, nil
	}
	if c.DryRun {
		done.Adoption = api.Adoption{Dir: d.cfg.DataDir, NodeID: d.cfg.NodeID, Letters: d.letters,
			Moving: api.Moving{Node: int(d.node.Number)}}
		report, err := store.Fsck(datadir.Queue(d.cfg), d.held(), nil)
		if err != nil {
			return done, err
		}
		if done.States = report.Recipients; report.Damaged() {
			done.Adoption.Failed = fmt.Sprintf("the queue is damaged in %d places, which 'mta queue fsck %s' names",
				len(report.Damage), d.cfg.DataDir)
			done.Adoption.Stays = damage(report)
		}
		for _, n := range report.Recipients {
			done.Count += n
		}
		return done, nil
	}
	d.copy, d.restored = r.log, r
	x, err := a.begin(ctx, c, d)
	if err != nil {
		return done, err
	}
	done.Count = int(x.queue.Stats().Queued)
	a.mu.Lock()
	late := a.ctx.Err() != nil
	if !late {
		a.latest = x
	}
	a.mu.Unlock()
	if late {
		x.close()
		return done, interrupted
	}
	kept = true
	go x.run()
	done.Adoption = x.status()
	return done, nil
}

// directory is that of a dead node.
type directory struct {
	cfg     *config.Config // this relay's, with its paths and nodeid
	node    membership.Dead
	formats *format.Set
	mark    datadir.Adopted
	letters int    // that sendmail has left there
	copy    uint64 // the log of its queue in the database; 0: there is none

	restored restored // how it was made of that, if it was
	lock     io.Closer
}

// held is the file system in which this node has the lock of the directory.
func (d *directory) held() vfs.FS { return held{vfs.OS()} }

type held struct{ vfs.FS }

func (held) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// look finds out whose directory it is, and refuses one whose mail must not be moved. Nothing is changed. It has the
// lock of the directory.
func (a *Adopter) look(ctx context.Context, c api.Adopt) (d *directory, err error) {
	cfg := *a.cfg.InForce()
	if same(c.Dir, cfg.DataDir) {
		return nil, api.Invalid("'mta cluster drain' moves the queue of this relay",
			"%s is the data directory of this relay", c.Dir)
	}
	cfg.DataDir, cfg.Accounting.Path = filepath.Clean(c.Dir), filepath.Join(c.Dir, "log")
	cfg.Cluster.Path = filepath.Join(c.Dir, clusterFile)
	d = &directory{cfg: &cfg}
	if err := readable(datadir.Queue(&cfg)); err != nil {
		return nil, err
	}
	if err := onlyFiles(ctx, &cfg); err != nil {
		return nil, err
	}
	if err := datadir.NotRestoring(&cfg); err != nil {
		return nil, conflict("", "%v", err)
	}
	if d.formats, err = datadir.Formats(&cfg, a.cfg.Version); err != nil {
		return nil, conflict("upgrade this node first, or end the upgrade there", "%v", err)
	}
	if d.mark, err = datadir.ReadAdopted(c.Dir); err != nil {
		return nil, conflict("restore the file, or remove it to begin again: other nodes are asked what they have",
			"%v", err)
	}
	own := a.cfg.Cluster.Number()
	if by := uint16(d.mark.By); by != 0 && by != own && d.mark.Ended.IsZero() && !a.cfg.Cluster.Gone(by) {
		return nil, conflict("go on there, or 'mta cluster forget "+fmt.Sprint(by)+"' if that node is gone for good",
			"node %d has begun to adopt the mail of %s", by, c.Dir)
	}
	d.lock, err = vfs.LockThere(filepath.Join(datadir.Queue(&cfg), store.LockName))
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return nil, conflict("stop it", "%s is in use by a relay", c.Dir)
	case errors.Is(err, fs.ErrNotExist):
		return nil, conflict("each relay makes the file; if no other one is missing, make it with 'touch'", "%v", err)
	case err != nil:
		return nil, api.Invalid(remedy(err), "%v", err)
	}
	defer func() {
		if err != nil {
			d.lock.Close()
			d = nil
		}
	}()
	for _, dir := range []string{c.Dir, datadir.Queue(&cfg), cfg.Accounting.Path} {
		if err := unix.Access(dir, unix.W_OK); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d, api.Invalid(remedy(err), "%s: %v", dir, err)
		}
	}
	// A directory that was begun was checked then: its node was forgotten since. A copy was, too, and is the newest.
	d.node, err = a.cfg.Cluster.Dead(ctx, cfg.Cluster.Path, c.Dead || d.mark.By != 0 || c.Node != 0)
	if errors.As(err, new(membership.Refusal)) {
		return d, conflict("", "%s: %v", c.Dir, err)
	}
	if err != nil {
		return d, api.Unavailable("'mta cluster status' has how the database is", "%v", err)
	}
	cfg.NodeID, d.letters = d.node.Name, letters(cfg.DataDir)
	return d, nil
}

const mount = "name the data_dir of the dead node, where its volume is mounted here; the relay's user must be able " +
	"to read and write it"

// remedy is the hint for an error of the operating system with the directory.
func remedy(err error) string {
	if errors.Is(err, syscall.EROFS) {
		return "copy the directory with 'cp -a' to a place that can be written, and adopt the copy; for a volume " +
			"that can, the unit of the package needs ReadWritePaths, and the relay a restart"
	}
	return mount
}

// readable refuses what is no queue.
func readable(dir string) error {
	is, err := os.Stat(filepath.Join(dir, "."))
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !is.IsDir():
		return api.Invalid(mount, "%s is not the data directory of a relay: it has no folder named queue",
			filepath.Dir(dir))
	case err != nil:
		return api.Invalid(remedy(err), "%v", err)
	}
	return nil
}

func same(one, other string) bool {
	a, err := os.Stat(one)
	if err != nil {
		return false
	}
	b, err := os.Stat(other)
	return err == nil && os.SameFile(a, b)
}

// letters counts those that sendmail has left in a data directory.
func letters(dir string) int {
	all, _ := os.ReadDir(filepath.Join(dir, config.Maildrop, maildrop.New))
	return len(slices.DeleteFunc(all, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") }))
}
