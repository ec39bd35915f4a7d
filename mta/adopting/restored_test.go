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
)

// copied is a database that has a copy of the queue in a directory.
type copied struct {
	*house
	queue  string
	log    spool.Status
	failed error // of the next call to Discard
}

func (c *copied) Leave(_ context.Context, node uint16, off bool) (func(path string) error, error) {
	if c.log.Sealed == 0 && !off {
		return nil, membership.Refusal("it answers")
	}
	return func(path string) error { return os.WriteFile(path, nil, 0o600) }, c.step("leave")
}

func (c *copied) Find(_ context.Context, node uint16, off bool) (spool.Status, error) {
	if node != 1 || c.log.Entries == 0 {
		return spool.Status{}, replica.Refusal("there is no copy")
	}
	return c.log, c.step("find")
}

func (c *copied) Take(ctx context.Context, l spool.Status, dir string) error {
	c.log.Sealed = 2
	c.step("take")
	return c.Look(ctx, l, dir)
}

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

func (c *copied) Discard(_ context.Context, log uint64) error {
	if log != 7 || c.failed != nil {
		return c.failed
	}
	c.log.Entries = 0
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
		c := &copied{house: h, log: spool.Status{Log: 7, Node: 1, Entries: 3}}
		h.adopter.cfg.Copies = c
		if done, err := h.adopt(api.Adopt{Intent: api.Intent{DryRun: true}}); err != nil || done.Count != 3 || c.log.Sealed != 0 {
			h.Errorf("%+v, %v, %+v", done, err, c.log)
		}
		h.set(func() { h.alive = errors.New("it answers") })
		if _, err := h.adopt(api.Adopt{}); err == nil || c.log.Sealed != 0 {
			h.Errorf("%v, %+v", err, c.log)
		}
		h.set(func() { h.alive = nil })
		if _, err := h.adopt(api.Adopt{}); err != nil || c.log.Sealed != 2 || c.log.Entries == 0 {
			h.Errorf("%v, %+v", err, c.log)
		}
		if a := h.ends(); a.Moving.Messages != 3 || a.Failed != "" || c.log.Entries != 0 {
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
			c := &copied{house: h, queue: h.dead + "/queue", log: spool.Status{Log: 7, Node: 1, Entries: 3}, failed: failed}
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
			if c.log.Entries != 0 || there() || len(h.took) != 3 {
				h.Errorf("%+v, there is a directory: %v, %d messages have moved", c.log, there(), len(h.took))
			}
		})
	}
}
