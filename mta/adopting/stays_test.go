package adopting

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/cluster/link"
	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/moving"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/events"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// segment is the file with the messages that the dead node has left.
func (h *house) segment() string {
	h.Helper()
	all, err := filepath.Glob(h.dead + "/queue/*.seg")
	for _, path := range all {
		if text, _ := os.ReadFile(path); bytes.Contains(text, []byte("due@a.example")) {
			return path
		}
	}
	h.Fatal("there is no segment", all, err)
	return ""
}

// spoil changes a file.
func (h *house) spoil(path string, f func([]byte)) {
	h.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		f(text)
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		h.Fatal(err)
	}
}

// refused has an adoption refused before the node is forgotten, twice, so that the first leaves no trace.
func (h *house) refused(want string) {
	h.Helper()
	for range 2 {
		_, err := h.adopt(api.Adopt{})
		if e := (*api.Error)(nil); !errors.As(err, &e) || !strings.Contains(e.Message, want) || !strings.Contains(e.Hint, "--accept") {
			h.Errorf("%v, want %q", err, want)
		}
	}
	mark, err := datadir.ReadAdopted(h.dead)
	if err != nil || mark.By != 0 || strings.Contains(strings.Join(h.steps, " "), "fence") || len(h.took) > 0 {
		h.Errorf("%+v, %v, %v", mark, err, h.steps)
	}
}

// stays has all else move, twice, and something stay for a reason: the directory is never done.
func (h *house) stays(want string, moved int) (last api.Adoption) {
	h.Helper()
	for range 2 {
		if _, err := h.adopt(api.Adopt{Accept: true}); err != nil {
			h.Fatal(err)
		}
		last = h.ends()
		if all := strings.Join(last.Stays, "\n"); !last.Ended.IsZero() || !strings.Contains(all, want) {
			h.Errorf("%+v, want %q", last, want)
		}
	}
	if mark, err := datadir.ReadAdopted(h.dead); err != nil || !mark.Ended.IsZero() || mark.By != 2 {
		h.Errorf("%+v, %v", mark, err)
	}
	if len(h.took) != moved {
		h.Errorf("%d have moved, want %d", len(h.took), moved)
	}
	return last
}

// TestDamagedSegment: what can't be read is named before anything changes. All else moves when that is accepted, and the
// directory is never done with.
func TestDamagedSegment(t *testing.T) {
	t.Run("all of it", func(t *testing.T) {
		within(t, func(h *house) {
			path := h.segment()
			os.Remove(strings.TrimSuffix(path, ".seg") + ".idx")
			h.spoil(path, func(b []byte) { clear(b) })
			h.refused(path)
			h.stays(path, 0)
		})
	})
	t.Run("a part", func(t *testing.T) {
		within(t, func(h *house) {
			path := h.segment()
			h.spoil(path, func(b []byte) {
				at := bytes.Index(b, []byte("due@a.example"))
				for i := at - 40; i < at+20; i++ {
					b[i] ^= 0xff
				}
			})
			os.Remove(strings.TrimSuffix(path, ".seg") + ".idx")
			h.refused(path + " from octet ")
			h.stays(path+" from octet ", 2)
		})
	})
}

// TestRestIsNamed: a message that can't be read has its id and the reason in the answer.
func TestRestIsNamed(t *testing.T) {
	for _, gone := range []bool{false, true} {
		within(t, func(h *house) {
			q, err := queue.Open(queue.Config{Dir: h.dead + "/queue", MinFree: 1, LargeBody: config.LargeBody})
			if err != nil {
				h.Fatal(err)
			}
			d := q.Begin()
			d.Write([]byte("Subject: x\r\n\r\n" + strings.Repeat("xxxxxxxxxx\r\n", 1<<20)))
			m := &envelope.Message{Sender: "large@a.example", Received: time.Now(), Recipients: []envelope.Recipient{{Address: "b@b.example"}}}
			if err := errors.Join(d.Commit(m), q.Close()); err != nil {
				h.Fatal(err)
			}
			all, _ := filepath.Glob(h.dead + "/queue/large/*")
			if gone {
				err = os.Remove(all[0])
			} else {
				h.spoil(all[0], func(b []byte) { b[1<<20] ^= 0xff })
			}
			if err != nil {
				h.Fatal(err)
			}
			h.stays("message "+m.ID.String()+" with 1 recipients: its content can't be read: ", 3)
		})
	}
	within(t, func(h *house) {
		h.declines = "due@a.example"
		h.stays(" with 1 recipients: the nodes that take mail decline it", 2)
	})
}

// TestEventsStay: events that this relay can't send are named, and never passed over.
func TestEventsStay(t *testing.T) {
	t.Run("other streams", func(t *testing.T) {
		within(t, func(h *house) {
			h.adopter.cfg.Streams = func(n string) []events.Settings { return h.streams(n)[1:] }
			h.refused("events of the stream app: this relay does not have that stream")
			h.stays("events of the stream app", 3)
			h.adopter.cfg.Streams = h.streams // and then it does
			if _, err := h.adopt(api.Adopt{}); err != nil {
				h.Fatal(err)
			}
			if a := h.ends(); a.Ended.IsZero() || !h.sent["Delivery"] || !h.sent["Transfer"] {
				h.Errorf("%+v, %v", a, h.sent)
			}
		})
	})
	t.Run("no log", func(t *testing.T) {
		within(t, func(h *house) {
			if err := os.Rename(h.dead+"/log", h.dir+"/log"); err != nil {
				h.Fatal(err)
			}
			h.refused("is not at " + h.dead + "/log")
			if err := os.Symlink(h.dir+"/log", h.dead+"/log"); err != nil {
				h.Fatal(err)
			}
			if _, err := h.adopt(api.Adopt{}); err != nil {
				h.Fatal(err)
			}
			if a := h.ends(); a.Ended.IsZero() || !h.sent["Delivery"] {
				h.Errorf("%+v, %v", a, h.sent)
			}
		})
	})
	t.Run("no accounting", func(t *testing.T) {
		within(t, func(h *house) {
			h.cfg.Accounting.Enabled = false
			h.refused("events of the stream app: accounting is disabled at this relay")
			h.stays("events of the stream app", 3)
		})
	})
}

// slow is a cluster of a house whose node 2 does not answer at first, and then takes 25 s for a batch.
type slow struct {
	*house
	from  time.Time
	apart atomic.Bool // this node takes no part
}

func (s *slow) Takes() bool        { return !s.apart.Load() }
func (s *slow) Gone(n uint16) bool { return n != 2 }

func (s *slow) Mover(d membership.Dead, cfg *config.Config, mail moving.Mail) (*moving.Mover, error) {
	c := moving.Config{Node: 2, Name: "two", Path: s.dir + "/moving", Mail: slowTaker{taker{h: s.house}}, May: s.Takes,
		Refuses: func() string { return "" }, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	own, err := moving.Open(c)
	if err != nil {
		return nil, err
	}
	c.Node, c.Name, c.Path, c.Mail, c.Drains = d.Number, cfg.NodeID, cfg.Cluster.Path+"-moving", mail, func() bool { return true }
	c.Nodes = func() []moving.Node { return []moving.Node{{Number: 1, Forgotten: true}, {Number: 2}} }
	c.Open = func(ctx context.Context, _ uint16, _ link.Purpose) (net.Conn, error) {
		if time.Now().Before(s.from) {
			return nil, errors.New("connection refused")
		}
		here, there := net.Pipe()
		go func() { own.Serve(context.WithoutCancel(ctx), 2, there); there.Close() }()
		return here, nil
	}
	return moving.Open(c)
}

type slowTaker struct{ taker }

func (k slowTaker) Take(ctx context.Context, from string, archive io.Reader, look bool) (t []moving.Taken, d []moving.Declined, err error) {
	t, d, err = k.taker.Take(ctx, from, archive, look)
	if len(t) > 0 {
		time.Sleep(25 * time.Second)
	}
	return t, d, err
}

// TestAdoptionWaits for a node that takes its time with a batch, although the pass before has found nobody.
func TestAdoptionWaits(t *testing.T) {
	within(t, func(h *house) {
		h.adopter.cfg.Cluster = &slow{house: h, from: time.Now().Add(5 * time.Second)}
		if _, err := h.adopt(api.Adopt{}); err != nil {
			h.Fatal(err)
		}
		if a := h.ends(); a.Ended.IsZero() || len(h.took) != 3 || len(a.Stays) > 0 {
			h.Errorf("%+v", a)
		}
	})
}

// TestAdoptionApart: while this node takes no part nothing moves, and the adoption ends with the reason.
func TestAdoptionApart(t *testing.T) {
	within(t, func(h *house) {
		s := &slow{house: h, from: time.Now().Add(time.Minute)}
		h.adopter.cfg.Cluster = s
		if _, err := h.adopt(api.Adopt{}); err != nil {
			h.Fatal(err)
		}
		s.apart.Store(true)
		a := h.ends()
		if !a.Ended.IsZero() || !strings.Contains(a.Failed, "takes no part") || len(a.Stays) != 3 {
			h.Errorf("%+v", a)
		}
	})
}

// TestKeysComeFirst: the node is not forgotten before all nodes have the keys of its clients' requests, unless it is
// accepted that some don't.
func TestKeysComeFirst(t *testing.T) {
	keyed := func(h *house) {
		q, err := queue.Open(queue.Config{Dir: h.dead + "/queue", MinFree: 1})
		if err != nil {
			h.Fatal(err)
		}
		key := envelope.NewRequestKey([4]byte{}, [10]byte{1})
		_, err = q.CommitBatch(&queue.Batch{Key: key, Request: [16]byte{2}, Last: true, Until: time.Now().Add(time.Hour)})
		if err := errors.Join(err, q.Close()); err != nil {
			h.Fatal(err)
		}
	}
	within(t, func(h *house) {
		keyed(h)
		s := &slow{house: h, from: time.Now().Add(time.Hour)}
		h.adopter.cfg.Cluster = s
		h.refused("node 2: connection refused")
		s.from = time.Now().Add(8 * time.Second) // it restarts
		done, err := h.adopt(api.Adopt{})
		h.ends()
		if steps := strings.Join(h.steps, ", "); err != nil || !done.Adoption.Running || !strings.Contains(steps, "1 keys, fence") {
			h.Errorf("%+v, %v: %v", done, err, h.steps)
		}
	})
	within(t, func(h *house) { // it is away for longer, and takes all mail then: that ends the adoption
		keyed(h)
		h.adopter.cfg.Cluster = &slow{house: h, from: time.Now().Add(20 * time.Second)}
		if _, err := h.adopt(api.Adopt{Accept: true}); err != nil {
			h.Fatal(err)
		}
		if a := h.ends(); a.Ended.IsZero() || len(h.took) != 3 || len(a.Stays) != 1 || !strings.Contains(a.Stays[0], "node 2: ") {
			h.Errorf("%+v", a)
		}
	})
}
