package adopting

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/spool"
	"example.org/mta/mta/replica"
	"example.org/mta/operator/api"
	"example.org/mta/queue/vfs"
)

// copied is a database that has a copy of the queue in a directory.
type copied struct {
	*house
	queue   string
	log     spool.Status
	failed  error // of the next call to Discard
	answers bool  // the node
	frozen  bool
	unread  error // of Others
	holds   int
	ended   error
}

func (c *copied) Leave(_ context.Context, node uint16, off bool, incarnation uint64) (func(path string) error, uint64, error) {
	c.mu.Lock()
	answers := c.log.Sealed == 0 && !off && c.answers
	c.mu.Unlock()
	if answers {
		return nil, 0, membership.Refusal("it answers")
	}
	return func(path string) error { return os.WriteFile(path, nil, 0o600) }, 5, c.step("leave")
}

func (c *copied) Find(_ context.Context, node uint16, off bool) (spool.Status, error) {
	if node != 1 || c.log.Empty {
		return spool.Status{}, replica.Refusal("there is no copy")
	}
	return c.log, c.step("find")
}

func (c *copied) Hold(_ context.Context, l spool.Status) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds++
	return nil
}

func (c *copied) Others(_ context.Context, dirs string) ([]spool.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if dirs != c.cfg.DataDir+"/taken-over" {
		c.Errorf("directories in %s are looked at", dirs)
	}
	if c.log.Empty || c.unread != nil {
		return nil, c.unread
	}
	return []spool.Status{c.log}, nil
}

func (c *copied) Take(ctx context.Context, l spool.Status, incarnation uint64, dir string) (Copy, error) {
	if incarnation != 5 {
		c.Errorf("incarnation %d of the node is gone", incarnation)
	}
	c.set(func() { c.log.Sealed = 2 })
	c.step("take")
	if _, err := os.Stat(dir); err == nil { // as it was left
		c.dead = dir
		return c, nil
	}
	return c, c.Look(ctx, l, dir+"/queue")
}

// is returns the log as it is now.
func (c *copied) is() spool.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log
}

func (c *copied) Under(vfs.FS) vfs.FS { return held{vfs.OS()} }

func (c *copied) Secret(l spool.Status, path string) ([]byte, error) {
	if l.Log != 7 || path != c.cfg.Cluster.SecretsPath() {
		c.Errorf("the secret of %+v is read from %s", l, path)
	}
	return []byte(strings.Repeat("M", 32)), nil
}

func (c *copied) Frozen() func() bool {
	return func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.frozen }
}

func (c *copied) Ended() error { c.mu.Lock(); defer c.mu.Unlock(); return c.ended }

func (c *copied) Close() error { return c.step("close") }

func (c *copied) Look(_ context.Context, l spool.Status, dir string) error {
	if l.Log != 7 {
		c.Errorf("%+v is taken", l)
	}
	c.dead = filepath.Dir(dir)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(c.queue))
}

func (c *copied) Discard(_ context.Context, log uint64, node uint16) error {
	if node != 1 {
		c.Errorf("a log of node %d is discarded", node)
	}
	if log != 7 || c.failed != nil {
		return c.failed
	}
	c.set(func() { c.log.Empty = true })
	return c.step("discard")
}

func (c *copied) End(_ context.Context, mark string, node uint16) (uint64, error) {
	if mark != c.dead+"/cluster-copy" || node != 1 {
		c.Errorf("the mark is %s, of node %d", mark, node)
	}
	if c.log.Log == 0 {
		return 0, nil
	}
	c.log.Sealed = 2
	return 7, c.step("end")
}

// TestAnAdoptionEndsTheCopy: what the database has of the directory's queue does not leave, too. A refused adoption
// leaves it: the node may start again.
func TestAnAdoptionEndsTheCopy(t *testing.T) {
	within(t, func(h *house) {
		c := &copied{house: h, log: spool.Status{Log: 7, Node: 1}}
		h.adopter.cfg.Copies = c
		if done, err := h.adopt(api.Adopt{Intent: api.Intent{DryRun: true}}); err != nil || done.Count != 3 || c.log.Sealed != 0 {
			h.Errorf("%+v, %v, %+v", done, err, c.log)
		}
		h.set(func() { h.alive = errors.New("it answers") })
		if _, err := h.adopt(api.Adopt{}); err == nil || c.log.Sealed != 0 {
			h.Errorf("%v, %+v", err, c.log)
		}
		h.set(func() { h.alive = nil })
		if _, err := h.adopt(api.Adopt{}); err != nil || c.log.Sealed != 2 || c.log.Empty {
			h.Errorf("%v, %+v", err, c.log)
		}
		if a := h.ends(); a.Moving.Messages != 3 || a.Failed != "" || !c.log.Empty {
			h.Errorf("%+v, %+v", a, c.log)
		}
		if _, err := os.Stat(h.dead + "/queue"); err != nil {
			h.Errorf("the directory is gone: %v", err)
		}
	})
}

// TestATakeover: the node is looked at, then its log is sealed and restored, and its mail moves as from a directory.
// The log is discarded when all has moved, also by a later command.
func TestATakeover(t *testing.T) {
	for _, failed := range []error{nil, errors.New("the database does not answer")} {
		within(t, func(h *house) {
			c := &copied{house: h, queue: h.dead + "/queue", log: spool.Status{Log: 7, Node: 1}, failed: failed, answers: true}
			h.adopter.cfg.Cluster, h.adopter.cfg.Copies = c, c
			there := func() bool { _, err := os.Stat(h.cfg.DataDir + "/taken-over/node-1-log-7"); return err == nil }
			take := func(a api.Adopt) (api.Adopted, error) { return h.adopter.Adopt(h.Context(), a) }
			if _, err := take(api.Adopt{Node: 3}); err == nil || !strings.Contains(err.Error(), "there is no copy") {
				h.Error(err)
			}
			if _, err := take(api.Adopt{Node: 1}); err == nil || !strings.Contains(err.Error(), "it answers") || c.log.Sealed != 0 {
				h.Errorf("%v, %+v", err, c.log)
			}
			dry, err := take(api.Adopt{Node: 1, Dead: true, Intent: api.Intent{DryRun: true}})
			if err != nil || dry.Count != 3 || dry.States["held"] != 1 || c.log.Sealed != 0 || there() {
				h.Errorf("%+v, %v, %+v", dry, err, c.log)
			}
			if _, err := os.Stat(h.dead); !errors.Is(err, fs.ErrNotExist) {
				h.Errorf("a dry run leaves %s: %v", h.dead, err)
			}
			h.set(func() { h.steps = nil })
			done, err := take(api.Adopt{Node: 1, Dead: true})
			if err != nil || done.Count != 3 || !done.Adoption.Running {
				h.Fatalf("%+v, %v", done, err)
			}
			if again, err := take(api.Adopt{Node: 1}); err != nil || !again.Adoption.Running {
				h.Errorf("%+v, %v", again, err)
			}
			a := h.ends()
			if a.Moving.Messages != 3 || a.Moving.Left != 0 || (failed == nil) != (a.Failed == "") || there() == (failed == nil) {
				h.Errorf("%+v, there is a directory: %v", a, there())
			}
			if steps := strings.Join(h.steps, ", "); !strings.HasPrefix(steps, "find, leave, take, dead, ") {
				h.Errorf("the steps were %s", steps)
			}
			if c.failed != nil { // nothing is restored again: its mail is elsewhere
				c.failed, h.steps = nil, nil
				if done, err := take(api.Adopt{Node: 1}); err != nil || done.Adoption.Ended.IsZero() || slices.Contains(h.steps, "take") {
					h.Errorf("%+v, %v, %v", done, err, h.steps)
				}
			}
			if !c.log.Empty || there() || len(h.took) != 3 {
				h.Errorf("%+v, there is a directory: %v, %d messages have moved", c.log, there(), len(h.took))
			}
		})
	}
}
