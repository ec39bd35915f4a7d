package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"example.org/mta/cluster/secrets"
	"example.org/mta/cluster/spool"
	"example.org/mta/cluster/spool/spooltest"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/format"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
)

// world is a database, and the directory of node 1.
type world struct {
	*testing.T
	spooltest.Memory
	dir  string
	ago  float64      // of all logs
	open atomic.Int32 // uses of the database

	mu    sync.Mutex // guards what follows
	log   bytes.Buffer
	fails func(after bool) error
	slow  time.Duration // of a call that reads data
	calls int           // those that begin a session
}

// within runs a test in virtual time.
func within(t *testing.T, f func(*world)) {
	dir := bubble.Folder(t)
	bubble.Test(t, func(t *testing.T) {
		w := &world{T: t, dir: dir, ago: 3600}
		w.Outage = w.outage
		f(w)
		if n := w.open.Load(); n != 0 {
			t.Errorf("the database is still open %d times", n)
		}
	})
}

func (w *world) outage(after bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails == nil {
		return nil
	}
	return w.fails(after)
}

// fail has calls of the database fail; nil: no more.
func (w *world) fail(f func(after bool) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = f
}

// used is a use of the database.
type used struct{ *world }

func (u used) Close() { u.world.open.Add(-1) }

func (w *world) Logs(ctx context.Context) ([]spool.Status, error) {
	all, err := w.Memory.Logs(ctx)
	for i := range all {
		all[i].Ago = w.ago
	}
	return all, err
}

// EntryData and the next two look how long calls take, and how many there are.
func (w *world) EntryData(ctx context.Context, log, entry uint64) ([]byte, error) {
	w.mu.Lock()
	slow := w.slow
	w.mu.Unlock()
	time.Sleep(slow)
	return w.Memory.EntryData(ctx, log, entry)
}

func (w *world) OpenLog(ctx context.Context, c spool.Claim) (spool.Opened, error) {
	w.begins()
	return w.Memory.OpenLog(ctx, c)
}

func (w *world) TakeLog(ctx context.Context, t spool.Take) (spool.Answer, error) {
	w.begins()
	return w.Memory.TakeLog(ctx, t)
}

func (w *world) begins() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
}

func (w *world) use() Engine {
	w.open.Add(1)
	return used{w}
}

func (w *world) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(b)
}

func (w *world) said(words string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.log.String(), words)
}

func (w *world) slog() *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func (w *world) config() Config {
	return Config{Dir: w.dir + "/queue", Mark: w.dir + "/mark", Node: 1, Engine: w.use(), Now: time.Now, Log: w.slog(),
		Forget: func(context.Context) error { return nil }, Aside: w.dir + "/superseded", Files: []string{w.dir + "/cluster", w.dir + "/cluster-moving"}}
}

// sealed has node 2 seal the newest log.
func (w *world) sealed() {
	w.Helper()
	all := w.logs()
	w.takes(2, all[len(all)-1], w.dir+"/into")
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) start() *Replica {
	w.Helper()
	r, err := Open(w.Context(), w.config())
	w.ok(err)
	return r
}

// write makes a file of a queue.
func (w *world) write(r *Replica, name string) error {
	f, err := r.Under(nil).Create(w.dir + "/queue/" + name)
	if err == nil {
		_, err = f.WriteAt([]byte("mail in "+name), 0)
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	return err
}

// has compares the files that are in a directory.
func (w *world) has(dir string, want ...string) {
	w.Helper()
	files, err := vfs.OS().List(dir)
	w.ok(err)
	var got []string
	for _, f := range files {
		if f.Name == store.LockName {
			continue
		}
		got = append(got, f.Name)
		if text, err := os.ReadFile(filepath.Join(dir, f.Name)); err != nil || string(text) != "mail in "+f.Name {
			w.Errorf("%s has %q, %v", f.Name, text, err)
		}
	}
	if !slices.Equal(got, want) {
		w.Errorf("%s has %q, want %q", dir, got, want)
	}
}

func (w *world) logs() []spool.Status {
	w.Helper()
	all, err := w.Logs(w.Context())
	w.ok(err)
	return all
}

func (w *world) mark() string {
	text, err := os.ReadFile(w.dir + "/mark")
	if !errors.Is(err, fs.ErrNotExist) {
		w.ok(err)
	}
	return string(text)
}

// refused expects that the relay does not start, until an operator acts.
func (w *world) refused(words ...string) {
	w.Helper()
	r, err := Open(w.Context(), w.config())
	if r != nil || !errors.Is(err, format.ErrRefused) {
		w.Fatalf("the error is %v", err)
	}
	for _, words := range words {
		if !strings.Contains(err.Error(), words) {
			w.Errorf("the error is %q, want %q", err, words)
		}
	}
}

func TestADirectoryAndItsLog(t *testing.T) {
	within(t, func(w *world) {
		r := w.start()
		w.ok(w.write(r, "1"))
		old := w.mark()
		w.ok(r.Close())
		r = w.start()
		w.ok(w.write(r, "2"))
		if is := w.logs(); len(is) != 1 || is[0].Node != 1 || is[0].Session <= uint64(time.Now().UnixMicro()) {
			w.Fatalf("the logs are %+v", is)
		}
		w.ok(r.Close())
		now, before := w.mark(), fmt.Sprint(w.logs())
		w.ok(os.WriteFile(w.dir+"/mark", []byte(old), 0o600))
		w.refused("has opened log 1 of node 1's queue after", "if this is an old copy", "'mta cluster takeover 1'")
		w.ok(os.Remove(w.dir + "/mark"))
		w.refused("was written with another directory than this one: restore that", "'mta cluster takeover 1'")
		w.refused("was written with another directory") // the mark of the attempt changes nothing
		if is := fmt.Sprint(w.logs()); is != before {
			w.Errorf("the logs are %s, were %s", is, before)
		}
		w.ok(os.WriteFile(w.dir+"/mark", []byte(now), 0o600))
		w.ok(os.Remove(w.dir + "/queue/1"))
		r = w.start()
		w.has(w.dir+"/queue", "1", "2")
		w.ok(r.Close())
		w.ok(w.Lose(1, 0)) // and the database counts for a directory of its session
		r = w.start()
		w.ok(r.Close())
		if is := w.logs(); is[0].Empty {
			w.Errorf("the log is %+v", is)
		}
		w.ok(os.WriteFile(w.dir+"/mark", []byte(strings.Replace(now, "Log", "Lag", 1)), 0o600))
		if _, err := Open(w.Context(), w.config()); err == nil || !strings.Contains(err.Error(), w.dir+"/mark: ") {
			w.Errorf("a damaged mark: %v", err)
		}
	})
}

// TestASecondProcess of the same directory does nothing to the log of the first, also if it has it end.
func TestASecondProcess(t *testing.T) {
	within(t, func(w *world) {
		r := w.start()
		mark, before := w.mark(), fmt.Sprint(w.logs())
		if _, err := Open(w.Context(), w.config()); !errors.Is(err, vfs.ErrLocked) {
			w.Errorf("a second process: %v", err)
		}
		c := w.config()
		if err := End(w.Context(), c); !errors.Is(err, vfs.ErrLocked) {
			w.Errorf("a second process that ends the log: %v", err)
		}
		c.Engine.Close()
		if w.mark() != mark || fmt.Sprint(w.logs()) != before {
			w.Error("it has changed something")
		}
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
	})
}

var errOutage = errors.New("no answer")

// TestACrashBeforeTheFirstEntry: the process ends before its session is begun, or before it knows that it is.
func TestACrashBeforeTheFirstEntry(t *testing.T) {
	for _, after := range []bool{false, true} {
		within(t, func(w *world) {
			for start := range 2 {
				w.fail(func(is bool) error {
					if is == after {
						return errOutage
					}
					return nil
				})
				ctx, cancel := context.WithTimeout(w.Context(), 3*time.Second)
				if _, err := Open(ctx, w.config()); !errors.Is(err, errOutage) || errors.Is(err, format.ErrRefused) {
					w.Errorf("the error is %v", err)
				}
				cancel()
				w.fail(nil)
				time.Sleep(time.Minute)
				r := w.start()
				w.ok(w.write(r, fmt.Sprint(start)))
				w.ok(r.Close())
			}
			if is := w.logs(); len(is) != 1 || is[0].Last == 0 {
				w.Errorf("the logs are %+v", is)
			}
		})
	}
}

func TestTheDatabaseIsAwayAtTheStart(t *testing.T) {
	within(t, func(w *world) {
		began := time.Now()
		w.fail(func(bool) error {
			if time.Since(began) < time.Minute {
				return errOutage
			}
			return nil
		})
		r := w.start()
		if took, said := time.Since(began), w.said("the queue waits for the database"); took != time.Minute || said != 6 {
			w.Errorf("it goes on after %s, and has said %d times that it waits", took, said)
		}
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		w.fail(func(bool) error { return &pgconn.PgError{Code: "42501", Message: "permission denied"} })
		began = time.Now()
		if _, err := Open(w.Context(), w.config()); err == nil || time.Since(began) != 0 {
			w.Errorf("a database that is not ours: %v, after %s", err, time.Since(began))
		}
	})
}

func TestTrouble(t *testing.T) {
	within(t, func(w *world) {
		if is, trouble := (*Replica)(nil).Status(); is != nil || trouble != "" {
			w.Errorf("%+v, %q", is, trouble)
		}
		r := w.start()
		status := func(want string) {
			w.Helper()
			if _, trouble := r.Status(); trouble != want {
				w.Errorf("the trouble is %q, want %q", trouble, want)
			}
		}
		w.ok(w.write(r, "1"))
		if is, _ := r.Status(); is.Log != 1 || is.Entry == 0 || is.Octets != 9 || is.Waiting != 0 || is.Lag != 0 {
			w.Errorf("%+v", is)
		}
		w.fail(func(bool) error { return errOutage })
		written := make(chan error)
		go func() { written <- w.write(r, "2") }()
		time.Sleep(5 * time.Second)
		status("")
		time.Sleep(2 * time.Second)
		status("for 7s the database has not taken what the queue writes: mail is neither accepted nor delivered: no answer")
		if is, _ := r.Status(); is.Waiting != 9 || is.Lag != 7 {
			w.Errorf("%+v", is)
		}
		w.fail(nil)
		w.ok(<-written)
		status("")
		w.sealed()
		time.Sleep(10 * time.Second) // the next beat finds it
		status("the copy of the queue in the database has ended: log 1 of node 1's queue was sealed by node 2, which has " +
			"the mail now: this process must not deliver it, too")
		if err := w.write(r, "3"); !errors.As(err, new(*spool.Taken)) {
			w.Error(err)
		}
		w.ok(r.Close()) // the log has all that there is
	})
}

func (w *world) taker(node uint16) *Taker {
	return &Taker{Open: func() (Engine, error) { return w.use(), nil }, Node: node, Now: time.Now, Log: w.slog()}
}

func (w *world) find(node uint16, off bool) spool.Status {
	w.Helper()
	l, err := w.taker(node).Find(w.Context(), 1, off)
	w.ok(err)
	return l
}

// notTaken expects a refusal.
func (w *world) notTaken(err error, words string) {
	w.Helper()
	if !errors.As(err, new(Refusal)) || !strings.Contains(err.Error(), words) {
		w.Errorf("the error is %v, want %q", err, words)
	}
}

func (w *world) notFound(node uint16, words string) {
	w.Helper()
	_, err := w.taker(node).Find(w.Context(), 1, false)
	w.notTaken(err, words)
}

// takes takes a log into a directory, and lets it rest there.
func (w *world) takes(node uint16, l spool.Status, into string) {
	w.Helper()
	w.ok(w.goesOn(node, l, into).Close())
}

func (w *world) goesOn(node uint16, l spool.Status, into string) *Replica {
	w.Helper()
	r, err := w.taker(node).Take(w.Context(), l, 5, into)
	w.ok(err)
	return r
}

func TestATakeover(t *testing.T) {
	within(t, func(w *world) {
		w.notFound(2, "the database has no copy of the queue of node 1")
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ago = 59
		w.notFound(2, "node 1 has written 59s ago: stop it and wait for 1m0s; --dead if its machine is off")
		if l := w.find(2, true); l.Log != 1 {
			w.Errorf("%+v is found", l)
		}
		w.ago = 60
		l := w.find(2, false)
		into, before := w.dir+"/into", fmt.Sprint(w.logs())
		w.ok(w.taker(2).Look(w.Context(), l, into+"-dry-run"))
		w.has(into+"-dry-run", "1")
		if is := fmt.Sprint(w.logs()); is != before {
			w.Errorf("a look changes the logs to %s from %s", is, before)
		}
		w.ok(w.write(r, "2"))
		_, err := w.taker(2).Take(w.Context(), l, 5, into)
		w.notTaken(err, "stop node 1, and give the command again")
		w.ok(w.write(r, "3"))
		l = w.find(2, false)
		for _, lost := range []string{"none", "", "queue/2"} {
			w.takes(2, l, into)
			w.has(into+"/queue", "1", "2", "3")
			if _, err := os.Stat(into + "/queue/" + store.LockName); err != nil {
				w.Error(err)
			}
			w.ok(os.RemoveAll(into + "/" + lost))
			w.ago = 0
			l = w.find(2, false) // its own: it goes on
		}
		if err := w.write(r, "4"); !errors.As(err, new(*spool.Taken)) {
			w.Errorf("the node goes on: %v", err)
		}
		r.Close()
		w.notFound(3, "node 2 has begun to take over the queue of node 1: go on there")
		l.Last--
		_, err = w.taker(3).Take(w.Context(), l, 5, into+"-3")
		w.notTaken(err, "another node has taken it over")
		w.ok(w.taker(3).Discard(w.Context(), l.Log, 1))
		if is := w.logs()[0]; is.Empty || is.Incarnation != 5 {
			w.Errorf("another node discards the log: %+v", is)
		}
		w.ok(os.RemoveAll(w.dir + "/queue"))
		w.ok(os.Remove(w.dir + "/mark"))
		r = w.start()
		w.ok(w.write(r, "new"))
		w.ok(r.Close())
		w.ago = 60
		if l := w.find(2, false); l.Log != 1 {
			w.Errorf("%+v is found: not the one that was begun", l)
		}
		if l := w.find(3, false); l.Log != 2 {
			w.Errorf("%+v is found: one that is being taken over", l)
		}
		w.ok(w.taker(2).Discard(w.Context(), 1, 1))
		if l = w.find(2, false); l.Log != 2 || l.Sealed != 0 {
			w.Errorf("%+v is found", l)
		}
		w.takes(2, l, into+"-2")
		w.has(into+"-2/queue", "new")
		w.ok(w.taker(2).Discard(w.Context(), 2, 1))
		w.notFound(2, "the database has no copy of the queue of node 1")
		none := &Taker{Open: func() (Engine, error) { return nil, errOutage }}
		if _, err := none.Find(w.Context(), 1, true); !errors.Is(err, errOutage) {
			w.Error(err)
		}
	})
}

// TestATakerThatDies is followed by another node, which has what it has done. Its directory is of no use then, also when
// the log comes back to it.
func TestATakerThatDies(t *testing.T) {
	within(t, func(w *world) {
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(w.write(r, "2"))
		w.ok(r.Close())
		two := w.goesOn(2, w.find(2, false), w.dir+"/two")
		changes := func(r *Replica, at, add, remove string) error {
			f, err := r.Under(nil).Create(at + "/queue/" + add)
			if err == nil {
				_, err = f.WriteAt([]byte("mail in "+add), 0)
			}
			if err == nil {
				err = errors.Join(f.Sync(), f.Close(), r.Under(nil).Remove(at+"/queue/"+remove), r.Under(nil).SyncDir(at+"/queue"))
			}
			return err
		}
		w.ok(changes(two, w.dir+"/two", "3", "1"))
		if two.Frozen()() || two.Ended() != nil {
			t.Error("it is frozen")
		}
		w.ago = 59
		w.notFound(3, "node 2 has begun to take over the queue of node 1: go on there")
		w.ago = 60
		three := w.goesOn(3, w.find(3, false), w.dir+"/three")
		w.has(w.dir+"/three/queue", "2", "3")
		w.ok(changes(three, w.dir+"/three", "4", "2"))
		if err := changes(two, w.dir+"/two", "5", "3"); !errors.As(err, new(*spool.Taken)) || !two.Frozen()() || two.Ended() == nil {
			t.Errorf("the first taker goes on: %v", err)
		}
		two.Close()
		w.ok(three.Close())
		w.takes(2, w.find(2, false), w.dir+"/two")
		w.has(w.dir+"/two/queue", "3", "4")
	})
}

// TestTheSecretOfALog is known to all nodes that share secrets.
func TestTheSecretOfALog(t *testing.T) {
	within(t, func(w *world) {
		path, secret := w.dir+"/secrets", []byte(strings.Repeat("M", secrets.Size))
		shared, err := secrets.Open(secrets.Config{Path: path, Now: time.Now, Log: w.slog(),
			Note: func([]string) (func(), error) { return func() {}, nil }})
		w.ok(err)
		w.ok((*Replica)(nil).ShareSecret(secret, shared.Join))
		r := w.start()
		w.ok(w.write(r, "1"))
		is := func(want []byte) {
			w.Helper()
			if got, err := w.taker(2).Secret(w.find(2, true), path); err != nil || !bytes.Equal(got, want) {
				w.Errorf("the secret is %q, %v, want %q", got, err, want)
			}
		}
		is(nil)
		w.ok(r.ShareSecret(secret, shared.Join))
		is(secret)
		w.ok(r.Close())
	})
}

// TestOthers are the logs that a node can take over by itself.
func TestOthers(t *testing.T) {
	within(t, func(w *world) {
		c := w.config()
		c.Zone = "a"
		r, err := Open(w.Context(), c)
		w.ok(err)
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		others := func(node uint16, want int) {
			w.Helper()
			k := w.taker(node)
			defer k.Close()
			all, err := k.Others(w.Context(), w.dir+"/taken-over")
			if err != nil || len(all) != want || want > 0 && all[0].Zone != "a" {
				w.Errorf("node %d can take %+v, %v", node, all, err)
			}
		}
		others(1, 0)
		others(2, 1)
		w.takes(2, w.find(2, false), w.dir+"/two")
		others(1, 1) // if that node dies: it has begun anew
		others(2, 1)
		others(3, 1)
		w.ok(w.taker(2).Discard(w.Context(), 1, 1))
		others(2, 0)
	})
}

// TestALongStart counts as a sign of life, although nothing is written.
func TestALongStart(t *testing.T) {
	within(t, func(w *world) {
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		w.ok(os.RemoveAll(w.dir + "/queue"))
		slow := func(again func()) (n int) {
			w.mu.Lock()
			w.slow, w.calls = time.Minute, 0
			w.mu.Unlock()
			again()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.slow = 0
			return w.calls
		}
		if n := slow(func() { r = w.start() }); n < 6 {
			t.Errorf("a start of a minute gives %d signs of life", n)
		}
		w.ok(r.Close())
		if n := slow(func() { w.takes(2, w.find(2, false), w.dir+"/two") }); n < 6 {
			t.Errorf("a take-over of a minute gives %d signs of life", n)
		}
	})
}

// TestDirectoriesOfLogs go when nothing in them is needed any more, and only then.
func TestDirectoriesOfLogs(t *testing.T) {
	within(t, func(w *world) {
		dirs := w.dir + "/taken-over"
		there := func(want bool) {
			w.Helper()
			k := w.taker(2)
			defer k.Close()
			_, err := k.Others(w.Context(), dirs)
			w.ok(err)
			if _, err := os.Stat(dirs + "/a"); (err == nil) != want {
				w.Errorf("the directory is there: %v, want %v", err == nil, want)
			}
		}
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		l := w.find(2, false)
		_, err := w.taker(2).Take(w.Context(), spool.Status{Log: l.Log, Node: 1, Session: l.Session - 1, Last: l.Last}, 5, dirs+"/a")
		w.notTaken(err, "another node has taken it over")
		there(false) // the log has a later session
		w.takes(2, l, dirs+"/a")
		there(true)
		w.takes(3, w.find(3, false), w.dir+"/three")
		there(false)
		w.takes(2, w.find(2, false), dirs+"/a")
		there(true)

		// A database that has lost what this node has done does not have it thrown away.
		l = w.find(2, false)
		l.Session--
		_, err = w.taker(2).Take(w.Context(), l, 5, dirs+"/a")
		w.notTaken(err, "the database has lost writes: "+dirs+"/a has more of the queue of node 1: 'mta cluster adopt'")
		there(true)
		if log, err := w.taker(2).End(w.Context(), dirs+"/a/cluster-copy", 1); log != 1 || err != nil || !w.logs()[0].Ended {
			w.Errorf("log %d, %v, %+v", log, err, w.logs())
		}
		there(true) // its mail moves from there
		if w.logs()[0].Empty {
			w.Error("the log is cleared before the mail has moved")
		}
		w.ok(w.taker(2).Discard(w.Context(), 1, 1))
		if !w.logs()[0].Empty {
			w.Error("the log is not discarded")
		}
		there(true) // as any directory that was adopted
	})
}

// TestALogIsDiscarded as a whole, also when that is cut off: nobody goes on with what is left.
func TestALogIsDiscarded(t *testing.T) {
	for cut := range 4 {
		within(t, func(w *world) {
			r := w.start()
			w.ok(w.write(r, "1"))
			w.ok(r.Close())
			w.takes(2, w.find(2, false), w.dir+"/two")
			calls := 0
			w.fail(func(bool) error {
				if calls++; calls > cut+2 { // the logs are read first
					return errOutage
				}
				return nil
			})
			if err := w.taker(2).Discard(w.Context(), 1, 1); !errors.Is(err, errOutage) {
				w.Errorf("cut off at %d: %v", cut, err)
			}
			w.fail(nil)
			k := w.taker(3)
			defer k.Close()
			all, err := k.Others(w.Context(), w.dir)
			w.ok(err)
			if is := w.logs()[0]; len(all) > 0 != !is.Ended || is.Ended && !is.Empty {
				w.Errorf("cut off at %d, %+v can be taken, and the log is %+v", cut, all, is)
			}
			w.ok(w.taker(2).Discard(w.Context(), 1, 1))
			if is := w.logs()[0]; !is.Ended || !is.Empty || is.Sealed != 2 {
				w.Errorf("%+v", is)
			}
		})
	}
}

// TestATakeoverWithoutRoom is refused before anything is sealed.
func TestATakeoverWithoutRoom(t *testing.T) {
	within(t, func(w *world) {
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		l := w.find(2, false)
		err := w.taker(2).prepare(l, 1<<62, new(spool.Take), w.dir+"/two")
		w.notTaken(err, "free some space, or take it over at another node")
	})
}

// TestADamagedCopy is not taken over in part: the error names what is damaged.
func TestADamagedCopy(t *testing.T) {
	within(t, func(w *world) {
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(w.write(r, "2"))
		w.ok(r.Close())
		w.ok(w.Damage(1, 2, true))
		_, err := w.taker(2).Take(w.Context(), w.find(2, false), 1, w.dir+"/into")
		if err == nil || !strings.Contains(err.Error(), "log 1 of node 1's queue: entry 2: it is damaged") {
			w.Errorf("the error is %v", err)
		}
	})
}

// TestEnd has the end of a copy cut off before or after each call of the database.
func TestEnd(t *testing.T) {
	for cut := range 2 * 3 {
		within(t, func(w *world) {
			end := func() error {
				ctx, cancel := context.WithTimeout(w.Context(), time.Second/2)
				defer cancel()
				c := w.config()
				defer c.Engine.Close()
				return End(ctx, c)
			}
			w.ok(end()) // there is none
			r := w.start()
			w.ok(w.write(r, "1"))
			w.ok(r.Close())
			calls := 0
			w.fail(func(bool) error {
				if calls++; calls > cut {
					return errOutage
				}
				return nil
			})
			if err := end(); !errors.Is(err, errOutage) || w.mark() == "" {
				w.Errorf("cut off at %d, it ends with %v, and the mark %q", cut, err, w.mark())
			}
			w.fail(nil)
			for range 2 {
				w.ok(end())
			}
			if is := w.logs(); len(is) != 1 || is[0].Sealed != 1 || !is[0].Empty || w.mark() != "" {
				w.Errorf("cut off at %d, the logs are %+v, the mark %q", cut, is, w.mark())
			}
			w.notFound(2, "the database has no copy of the queue of node 1")
			r = w.start()
			w.ok(r.Close())
			if is := w.logs(); len(is) != 2 {
				w.Errorf("the logs are %+v", is)
			}
		})
	}
	within(t, func(w *world) { // mail that another node has is not delivered
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		w.sealed()
		c := w.config()
		defer c.Engine.Close()
		w.ok(End(w.Context(), c))
		w.has(w.dir + "/queue")
		w.has(w.dir+"/superseded/log-1/queue", "1")
		if w.mark() != "" || len(w.logs()) != 1 {
			w.Errorf("the mark is %s, the logs are %+v", w.mark(), w.logs())
		}
	})
}

func TestWithoutACluster(t *testing.T) {
	cfg := &config.Config{DataDir: t.TempDir()}
	cfg.Cluster.Path = cfg.DataDir + "/cluster"
	of := func() (*Replica, error) { return Of(t.Context(), cfg, nil, time.Now, slog.New(slog.DiscardHandler)) }
	if r, err := of(); r != nil || err != nil {
		t.Errorf("without a mark: %v", err)
	}
	w := &world{T: t}
	c := Config{Dir: cfg.DataDir + "/queue", Mark: cfg.DataDir + "/cluster-copy", Node: 1, Engine: w.use(), Now: time.Now,
		Log: w.slog()}
	r, err := Open(t.Context(), c)
	if err != nil || r.Close() != nil {
		t.Fatal(err)
	}
	if r, err := of(); r != nil || !errors.Is(err, format.ErrRefused) ||
		!strings.Contains(err.Error(), "start this relay once with the cluster block, without 'replicate'") {
		t.Errorf("with a mark: %v", err)
	}
	cfg.Cluster.Database, cfg.Cluster.Certificate = "host=localhost", cfg.DataDir+"/none.pem"
	for _, cfg.Cluster.Replicate = range []bool{false, true} {
		if r, err := of(); r != nil || err == nil || !strings.Contains(err.Error(), "/none.pem") {
			t.Errorf("without a certificate: %v", err)
		}
	}
}

// TestTheStatementOfTheFormat is written by others, and no part of the copy.
func TestTheStatementOfTheFormat(t *testing.T) {
	within(t, func(w *world) {
		w.ok(os.MkdirAll(w.dir+"/queue", 0o700))
		path := w.dir + "/queue/" + format.FileName
		w.ok(os.WriteFile(path, []byte("by 1.0.9"), 0o600))
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		w.ok(os.WriteFile(path, []byte("by 1.0.10, which is longer"), 0o600))
		w.ok(w.start().Close())
		if text, err := os.ReadFile(path); err != nil || string(text) != "by 1.0.10, which is longer" {
			w.Errorf("the statement is %q, %v", text, err)
		}
		w.ok(os.Remove(path))
		w.ok(w.start().Close())
		w.has(w.dir+"/queue", "1")
	})
}

// TestADirectoryThatIsAdopted: its log is sealed, unless the mail is already taken from there.
func TestADirectoryThatIsAdopted(t *testing.T) {
	within(t, func(w *world) {
		mark := w.dir + "/mark"
		if log, err := w.taker(2).End(w.Context(), mark, 1); log != 0 || err != nil {
			w.Errorf("a directory without a mark: log %d, %v", log, err)
		}
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		for range 2 {
			if log, err := w.taker(2).End(w.Context(), mark, 1); log != 1 || err != nil || w.logs()[0].Sealed != 1 {
				w.Errorf("log %d, %v, %+v", log, err, w.logs())
			}
		}
		w.ago = 3600
		w.notFound(2, "the database has no copy of the queue of node 1")
		k := w.taker(2)
		defer k.Close()
		if all, err := k.Others(w.Context(), w.dir); len(all) > 0 || err != nil {
			w.Errorf("%+v are to be taken over, %v", all, err)
		}
		w.ok(w.taker(2).Discard(w.Context(), 1, 1))
		if !w.logs()[0].Empty {
			w.Error("the log is not discarded")
		}
		w.ok(os.Remove(mark))
		w.ok(w.start().Close())
		w.takes(2, w.logs()[1], w.dir+"/into")
		w.ok(w.taker(2).Discard(w.Context(), 2, 1))
		if _, err := w.taker(2).End(w.Context(), mark, 1); !errors.As(err, new(Refusal)) || !strings.Contains(err.Error(), "would leave twice") {
			w.Errorf("what was taken from the log is adopted, too: %v", err)
		}
	})
}

// TestAbandon: after a rejoin the directory begins another log, also one that was refused before.
func TestAbandon(t *testing.T) {
	within(t, func(w *world) {
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		w.ok(os.Remove(w.dir + "/mark"))
		w.refused("was written with another directory")
		if w.mark() != "" {
			w.Errorf("a directory without a log has the mark %s", w.mark())
		}
		e := w.use()
		w.ok(Abandon(w.Context(), e, 2, time.Now()))
		if w.logs()[0].Sealed != 0 {
			w.Error("the log of another node is ended")
		}
		w.ok(Abandon(w.Context(), e, 1, time.Now()))
		w.ok(Abandon(w.Context(), e, 1, time.Now()))
		e.Close()
		r = w.start()
		w.ok(r.Close())
		if all := w.logs(); len(all) != 2 || all[0].Sealed != 1 || !all[0].Empty || all[1].Sealed != 0 || all[1].Empty {
			w.Errorf("%+v", all)
		}
		w.has(w.dir+"/queue", "1")
	})
}

// TestAnEndThatWasCutOff: with 'replicate' again the refusal says that the node itself has ended the copy.
func TestAnEndThatWasCutOff(t *testing.T) {
	within(t, func(w *world) {
		w.ok(w.start().Close())
		e := w.use()
		w.ok(Abandon(w.Context(), e, 1, time.Now())) // the mark stays
		e.Close()
		w.refused("has ended log 1 of node 1's queue", "'mta cluster rejoin'")
	})
}

// TestADirectoryThatDoesNotFit has nothing to do with its log.
func TestADirectoryThatDoesNotFit(t *testing.T) {
	within(t, func(w *world) {
		w.ok(w.start().Close())
		before := fmt.Sprint(w.logs())
		c, old := w.config(), errors.New("an old copy")
		c.Fit = func(context.Context) (bool, error) { return false, refusal{old} }
		if _, err := Open(w.Context(), c); !errors.Is(err, old) || !errors.Is(err, format.ErrRefused) {
			w.Errorf("the error is %v", err)
		}
		if is := fmt.Sprint(w.logs()); is != before {
			w.Errorf("the logs are %s, were %s", is, before)
		}
	})
}

// TestANodeThatIsCutOff ends no content when another one may have its queue, closes connections, and goes on when the
// database is back.
func TestANodeThatIsCutOff(t *testing.T) {
	for takeover, until := range map[time.Duration]time.Duration{0: 30 * time.Second, 40 * time.Second: 20 * time.Second,
		time.Hour: 30 * time.Second} {
		within(t, func(w *world) {
			if may := (*Replica)(nil).MayEnd(); may != nil {
				w.Error("a queue without a copy")
			}
			c := w.config()
			c.Takeover = takeover
			r, err := Open(w.Context(), c)
			w.ok(err)
			var cuts atomic.Int64
			ctx, stop := context.WithCancel(w.Context())
			watched := make(chan error)
			go func() {
				watched <- r.Watch(ctx, w.dir, func() error { return nil }, func() int { cuts.Add(1); return 3 })
			}()
			w.ok(w.write(r, "1")) // the last entry that the log takes
			began := time.Now()
			w.fail(func(bool) error { return errOutage })
			for r.MayEnd()() && time.Since(began) < time.Hour {
				if time.Sleep(time.Second); cuts.Load() > 0 {
					w.Error("connections are cut while content may be ended")
				}
			}
			if took := time.Since(began).Round(time.Second); took != until+time.Second {
				w.Errorf("content is ended for %s, want %s", took, until)
			}
			time.Sleep(2 * look)
			if n := w.said("connections are cut amid mail"); n == 0 || n != int(cuts.Load()) {
				w.Errorf("connections are cut %d times, which is said %d times", cuts.Load(), n)
			}
			w.fail(nil)
			time.Sleep(10 * time.Second)
			if cuts.Store(0); !r.MayEnd()() {
				w.Error("no content may be ended later")
			}
			time.Sleep(time.Minute)
			if stop(); <-watched != nil || cuts.Load() > 0 {
				w.Errorf("%d cuts later", cuts.Load())
			}
			w.ok(r.Close())
		})
	}
}

// TestARelayThatLosesItsQueue ends: with a copy another start decides what there is to do.
func TestARelayThatLosesItsQueue(t *testing.T) {
	forgotten := refusal{errors.New("this node was forgotten")}
	within(t, func(w *world) {
		var none *Replica
		if err := none.Watch(w.Context(), w.dir, func() error { return forgotten }, nil); !errors.Is(err, format.ErrRefused) {
			w.Errorf("without a copy: %v", err)
		}
		r := w.start()
		watch := func(ousted error) (err error) {
			w.Helper()
			cuts := 0
			if err = r.Watch(w.Context(), w.dir, func() error { return ousted }, func() int { cuts++; return 0 }); err == nil || cuts == 0 || r.MayEnd()() {
				w.Errorf("%v, and %d cuts", err, cuts)
			}
			return err
		}
		if err := watch(forgotten); errors.Is(err, format.ErrRefused) || !strings.Contains(err.Error(), "was forgotten") {
			w.Errorf("a node that is forgotten: %v", err)
		}
		w.sealed()
		if err := watch(nil); errors.Is(err, format.ErrRefused) || !errors.As(err, new(*spool.Taken)) {
			w.Errorf("a log that is sealed: %v", err)
		}
		w.ok(datadir.Adopted{By: 2, Began: time.Now()}.Write(w.dir))
		if err := watch(forgotten); !errors.Is(err, format.ErrRefused) {
			w.Errorf("a directory that is adopted: %v", err)
		}
		r.Close()
	})
}

var errCrash = errors.New("the machine is off")

// crashing is a file system that changes so much more, and then nothing.
type crashing struct {
	vfs.FS
	left int
}

func (c *crashing) step(do func() error) error {
	if c.left--; c.left < 0 {
		return errCrash
	}
	return do()
}

func (c *crashing) MkdirAll(dir string) error {
	return c.step(func() error { return c.FS.MkdirAll(dir) })
}
func (c *crashing) SyncDir(dir string) error {
	return c.step(func() error { return c.FS.SyncDir(dir) })
}
func (c *crashing) Rename(from, to string) error {
	return c.step(func() error { return c.FS.Rename(from, to) })
}

// TestASupersededQueue is set aside as a whole, whenever the start that does it is cut off, with what was kept of the
// node. All else stays, and the one that was set aside before is removed.
func TestASupersededQueue(t *testing.T) {
	steps := 0
	for whole := false; !whole; steps++ {
		within(t, func(w *world) {
			text := func(path string) string {
				all, _ := os.ReadFile(w.dir + "/" + path)
				return string(all)
			}
			for log := 1; log <= 2; log++ {
				r := w.start()
				w.ok(w.write(r, fmt.Sprint(log)))
				w.ok(os.MkdirAll(w.dir+"/queue/"+store.LargeDir, 0o700))
				w.ok(w.write(r, store.LargeDir+"/body"))
				w.ok(os.WriteFile(w.dir+"/queue/"+format.FileName, []byte("mail in format"), 0o600))
				for _, name := range []string{"cluster", "cluster-moving", "streams.db"} {
					w.ok(os.WriteFile(w.dir+"/"+name, fmt.Append(nil, name, log), 0o600))
				}
				w.ok(r.Close())
				w.sealed()
				c := w.config()
				c.FS = &crashing{vfs.OS(), steps}
				r, err := Open(w.Context(), c)
				if whole = err == nil; !whole {
					if !errors.Is(err, errCrash) {
						w.Fatal(err)
					}
					r = w.start()
				}
				w.ok(w.write(r, "new"))
				w.has(w.dir+"/queue", "format", "new")
				if _, err := vfs.OS().Lock(w.dir + "/queue/" + store.LockName); !errors.Is(err, vfs.ErrLocked) {
					w.Errorf("the lock: %v", err)
				}
				w.ok(r.Close())
				aside := fmt.Sprintf("superseded/log-%d", log)
				w.has(w.dir+"/"+aside+"/queue", [][]string{{"1"}, {"2", "new"}}[log-1]...)
				for path, want := range map[string]string{
					"streams.db": fmt.Sprint("streams.db", log),
					"cluster":    "", "cluster-moving": "", "queue/" + store.LargeDir + "/body": "",
					aside + "/cluster": fmt.Sprint("cluster", log), aside + "/cluster-moving": fmt.Sprint("cluster-moving", log),
					aside + "/queue/" + store.LargeDir + "/body": "mail in " + store.LargeDir + "/body",
				} {
					if got := text(path); got != want {
						w.Errorf("cut off at %d, %s has %q, want %q", steps, path, got, want)
					}
				}
				if m, err := readMark(w.dir + "/" + aside + "/mark"); m.Log != uint64(log) || err != nil {
					w.Errorf("its mark is %+v, %v", m, err)
				}
				if all, err := os.ReadDir(w.dir + "/superseded"); err != nil || len(all) != 1 {
					w.Errorf("%v is set aside, %v", all, err)
				}
				if all := w.logs(); len(all) != log+1 || all[log].Sealed != 0 || all[log].Last == 0 {
					w.Errorf("cut off at %d, the logs are %+v", steps, all)
				}
				w.ok(w.start().Close())
			}
			if n := w.said("another node has the mail of this queue"); n < 2 {
				w.Errorf("that is said %d times", n)
			}
		})
	}
	if steps < 10 {
		t.Errorf("there are %d steps", steps)
	}
}

// TestASupersededNodeWaits until the one that has its mail has forgotten it, and moves nothing before.
func TestASupersededNodeWaits(t *testing.T) {
	within(t, func(w *world) {
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		w.sealed()
		began := time.Now()
		c := w.config()
		c.Fit = func(context.Context) (bool, error) {
			if forgotten := time.Since(began) >= time.Minute; forgotten {
				return true, nil
			}
			w.has(w.dir+"/queue", "1")
			return false, nil
		}
		r, err := Open(w.Context(), c)
		w.ok(err)
		if took, said := time.Since(began), w.said("node 2 has sealed log 1, and not forgotten this node yet"); took != time.Minute || said != 6 {
			w.Errorf("it goes on after %s, and has said %d times that it waits", took, said)
		}
		w.ok(r.Close())
	})
}

// TestAnEmptyDirectory goes on with what its log has, once nobody can write to that, and nobody has taken it over.
func TestAnEmptyDirectory(t *testing.T) {
	starts := func(w *world) (r *Replica, took time.Duration, forgot int) {
		w.Helper()
		c := w.config()
		c.Forget = func(context.Context) error {
			if forgot++; forgot < 3 {
				return errors.New("it answers")
			}
			return nil
		}
		c.Fit = func(context.Context) (bool, error) { return forgot >= 3, nil }
		began := time.Now()
		r, err := Open(w.Context(), c)
		w.ok(err)
		return r, time.Since(began), forgot
	}
	lost := func(w *world) {
		w.Helper()
		w.ok(errors.Join(os.RemoveAll(w.dir+"/queue"), os.Remove(w.dir+"/mark")))
	}
	within(t, func(w *world) {
		first := w.start()
		w.ok(w.write(first, "1"))
		old := w.mark()
		time.AfterFunc(time.Minute, func() { first.Close() }) // which writes until then
		time.Sleep(time.Second)
		lost(w)
		elsewhere := func(words string) {
			w.Helper()
			err := Elsewhere(w.Context(), used{w}, w.dir+"/mark", 1)
			if words == "" {
				w.ok(err)
			} else {
				w.notTaken(err, words)
			}
		}
		elsewhere("the database has the queue of node 1, and " + w.dir + " nothing of it")
		r, took, forgot := starts(w)
		elsewhere("")
		if took < 149*time.Second || took > 152*time.Second || forgot != 3 {
			w.Errorf("it goes on after %s, and is forgotten by the attempt %d", took, forgot)
		}
		w.has(w.dir+"/queue", "1")
		w.ok(w.write(r, "2"))
		w.ok(r.Close())
		if is := w.logs(); len(is) != 1 || is[0].Sealed != 0 {
			w.Errorf("the logs are %+v", is)
		}
		w.ok(os.WriteFile(w.dir+"/mark", []byte(old), 0o600)) // the disk was not lost
		w.refused("has opened log 1 of node 1's queue after")
	})
	within(t, func(w *world) { // another node is first
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		lost(w)
		time.AfterFunc(time.Minute, w.sealed)
		r, _, _ = starts(w)
		w.has(w.dir + "/queue")
		w.ok(w.write(r, "2"))
		w.ok(r.Close())
		if is := w.logs(); len(is) != 2 || is[0].Sealed != 2 || is[1].Sealed != 0 {
			w.Errorf("the logs are %+v", is)
		}
	})
	within(t, func(w *world) { // another node has it, and dies before it has forgotten this one
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		w.sealed()
		lost(w)
		r, took, _ := starts(w)
		if took < 90*time.Second {
			w.Errorf("it begins anew after %s", took)
		}
		w.has(w.dir + "/queue")
		w.ok(r.Close())
	})
	within(t, func(w *world) { // the mail of the log has moved, and the node has joined anew since, without a copy
		r := w.start()
		w.ok(r.Close())
		w.sealed()
		w.ok(w.taker(2).Discard(w.Context(), 1, 1))
		lost(w)
		if r, took, forgot := starts(w); took != 0 || forgot != 0 {
			w.Errorf("it begins anew after %s, and forgets the node", took)
		} else {
			w.ok(r.Close())
		}
	})
	for _, there := range []string{"cluster", "queue/1"} { // it is not empty
		within(t, func(w *world) {
			r := w.start()
			w.ok(w.write(r, "1"))
			w.ok(r.Close())
			w.ok(os.Remove(w.dir + "/mark"))
			if there == "cluster" {
				w.ok(os.Remove(w.dir + "/queue/1"))
				w.ok(os.WriteFile(w.dir+"/cluster", nil, 0o600))
			}
			w.refused("was written with another directory than this one")
		})
	}
}

// TestATakerThatEndsForGood keeps nobody from starting: the node goes on with an empty queue, and takes over its own log.
func TestATakerThatEndsForGood(t *testing.T) {
	within(t, func(w *world) {
		r := w.start()
		w.ok(w.write(r, "1"))
		w.ok(r.Close())
		w.sealed()
		forgotten := false
		c := w.config()
		c.Fit = func(context.Context) (bool, error) { return forgotten, nil }
		c.Forget = func(context.Context) error { forgotten = true; return nil }
		began := time.Now()
		r, err := Open(w.Context(), c)
		w.ok(err)
		if took := time.Since(began); took != silent+sole || !forgotten {
			w.Errorf("it goes on after %s", took)
		}
		w.has(w.dir + "/queue")
		w.ok(r.Close())
	})
}

// TestWhatIsNotSuperseded: a log of another cluster, one that the directory is newer than, and a node whose number
// another directory has.
func TestWhatIsNotSuperseded(t *testing.T) {
	other := refusal{errors.New("an old copy")}
	for name, change := range map[string]func(*world, *Config){
		"another cluster": func(_ *world, c *Config) { c.Node = 3 },
		"a newer directory": func(w *world, _ *Config) {
			w.ok(smallfile.WriteObject(w.dir+"/mark", 0o600, &mark{1, 1 << 60, 1 << 60}))
		},
		"another directory": func(_ *world, c *Config) {
			asked := 0
			c.Fit = func(context.Context) (bool, error) {
				if asked++; asked > 1 {
					return false, other
				}
				return false, nil
			}
		},
	} {
		within(t, func(w *world) {
			r := w.start()
			w.ok(w.write(r, "1"))
			w.ok(r.Close())
			w.sealed()
			c := w.config()
			change(w, &c)
			if _, err := Open(w.Context(), c); !errors.Is(err, format.ErrRefused) {
				w.Errorf("%s: %v", name, err)
			}
			w.has(w.dir+"/queue", "1")
		})
	}
}
