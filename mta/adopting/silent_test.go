package adopting

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/mta/cluster/spool"
)

// watching runs Watch on a database that has a copy of node 1's queue, until the test returns.
func watching(t *testing.T, takeover time.Duration, test func(h *house, c *copied)) {
	within(t, func(h *house) {
		c := &copied{house: h, queue: h.dead + "/queue", log: spool.Status{Log: 7, Node: 1, Zone: "b", Beat: 1}}
		h.adopter.cfg.Cluster, h.adopter.cfg.Copies = c, c
		h.cfg.Cluster.Takeover, h.cfg.Cluster.Zone = takeover, "a"
		ctx, cancel := context.WithCancel(h.Context())
		over := make(chan struct{})
		go func() { h.adopter.Watch(ctx); close(over) }()
		defer func() { cancel(); <-over }()
		test(h, c)
	})
}

func (h *house) moved(want int) {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.took) != want {
		h.Errorf("%d messages have moved, want %d", len(h.took), want)
	}
}

// stays expects that nothing is taken over for so long, and all soon after that.
func (c *copied) stays(d time.Duration) {
	c.Helper()
	time.Sleep(d - time.Second)
	c.moved(0)
	if is := c.is(); is.Sealed != 0 {
		c.Errorf("before %v have passed: %+v", d, is)
	}
	time.Sleep(time.Minute / 2)
	c.moved(3)
	if is := c.adopter.Trouble(); is != "" || !c.is().Empty {
		c.Errorf("%v later: %s, %+v", d+time.Minute/2, is, c.is())
	}
}

func TestASilentNode(t *testing.T) {
	const first = glance // when the log is seen first
	watching(t, time.Minute, func(h *house, c *copied) { c.stays(first + time.Minute) })
	watching(t, time.Minute, func(h *house, c *copied) {
		h.set(func() { c.log.Zone = "a" })
		c.stays(first + time.Minute + neighbour)
	})
	// A sign of life, a database that can't be read or that acknowledges nothing, and a machine that stood still: the
	// time begins anew.
	const later = 40 * time.Second
	watching(t, time.Minute, func(h *house, c *copied) {
		time.Sleep(later - time.Second)
		h.set(func() { c.log.Beat, c.log.Ago = 2, 1000 })
		time.Sleep(time.Second)
		c.stays(time.Minute)
	})
	for _, away := range []func(*copied, bool){
		func(c *copied, is bool) { c.deaf = is },
		func(c *copied, is bool) {
			if c.unread = nil; is {
				c.unread = errors.New("no answer")
			}
		},
	} {
		watching(t, time.Minute, func(h *house, c *copied) {
			time.Sleep(later - time.Second)
			h.set(func() { away(c, true) })
			time.Sleep(time.Hour)
			h.set(func() { away(c, false) })
			time.Sleep(glance)
			c.stays(time.Minute - glance)
		})
	}
}

// TestNoNodeIsSilent: with takeover = "0s" an operator decides.
func TestNoNodeIsSilent(t *testing.T) {
	watching(t, 0, func(h *house, c *copied) {
		time.Sleep(time.Hour)
		h.moved(0)
		if is := c.is(); is.Sealed != 0 {
			h.Errorf("%+v", is)
		}
	})
}

// TestWhatANodeHasBegun goes on at once, also after an end of the process.
func TestWhatANodeHasBegun(t *testing.T) {
	watching(t, time.Minute, func(h *house, c *copied) {
		h.set(func() { c.log.Sealed = 2 })
		time.Sleep(time.Minute / 2)
		h.moved(3)
	})
}

// TestASilentNodeThatAnswers is an alarm until it is over, and is tried again after others can have.
func TestASilentNodeThatAnswers(t *testing.T) {
	watching(t, time.Minute, func(h *house, c *copied) {
		h.set(func() { c.answers = true })
		time.Sleep(80 * time.Second)
		if is := h.adopter.Trouble(); is != "the queue of node 1, which has given no sign of life, is not taken over: it answers" {
			h.Error(is)
		}
		h.set(func() { c.answers = false })
		time.Sleep(time.Minute)
		h.moved(0)
		time.Sleep(2 * time.Minute)
		h.moved(3)
		if is := h.adopter.Trouble(); is != "" {
			h.Error(is)
		}
	})
	watching(t, time.Minute, func(h *house, c *copied) { // and it lives: no alarm
		h.set(func() { c.answers = true })
		time.Sleep(80 * time.Second)
		h.set(func() { c.log.Beat = 2 })
		time.Sleep(glance + time.Second)
		if is := h.adopter.Trouble(); is != "" {
			h.Error(is)
		}
	})
}

// TestADrainingNode takes nothing over.
func TestADrainingNode(t *testing.T) {
	watching(t, time.Minute, func(h *house, c *copied) {
		h.set(func() { h.drains = true })
		time.Sleep(time.Hour)
		h.moved(0)
		h.set(func() { h.drains = false })
		time.Sleep(time.Minute / 2)
		h.moved(3)
	})
}

// TestLogsThatCanNotBeRead are an alarm, once that lasts.
func TestLogsThatCanNotBeRead(t *testing.T) {
	watching(t, time.Minute, func(h *house, c *copied) {
		h.set(func() { c.unread = errors.New("permission denied") })
		time.Sleep(blink - time.Second)
		if is := h.adopter.Trouble(); is != "" {
			h.Error(is)
		}
		time.Sleep(2 * glance)
		if is := h.adopter.Trouble(); is != "queues of nodes that are gone are not taken over: permission denied" {
			h.Error(is)
		}
		h.set(func() { c.unread = nil })
		time.Sleep(glance + time.Second)
		if is := h.adopter.Trouble(); is != "" {
			h.Error(is)
		}
	})
}

// TestATakeoverStandsStill while its copy would not show what has left, and ends when another node goes on.
func TestATakeoverStandsStill(t *testing.T) {
	watching(t, time.Minute, func(h *house, c *copied) {
		h.set(func() { c.frozen = true })
		time.Sleep(time.Hour)
		h.moved(0)
		h.set(func() { c.frozen = false })
		time.Sleep(2 * time.Minute)
		h.moved(3)
	})
	watching(t, time.Minute, func(h *house, c *copied) {
		h.set(func() { c.frozen, c.ended = true, errors.New("it was sealed by node 3") })
		time.Sleep(90 * time.Second)
		h.moved(0)
		if is := h.adopter.Trouble(); c.is().Empty || !strings.Contains(is, "it was sealed by node 3") {
			h.Errorf("%+v, %s", c.is(), is)
		}
	})
}

// TestWhatATakeoverLeaves is an alarm, and the log is held: other nodes would meet the same.
func TestWhatATakeoverLeaves(t *testing.T) {
	watching(t, time.Minute, func(h *house, c *copied) {
		h.set(func() { h.declines = "held@a.example" })
		time.Sleep(3 * time.Minute)
		h.moved(2)
		holds := 0
		h.set(func() { holds = c.holds })
		if is := h.adopter.Trouble(); !strings.Contains(is, "the nodes that take mail decline it") || c.is().Empty || holds < 5 {
			h.Errorf("%s, %+v, %d signs of life", is, c.is(), holds)
		}
		h.set(func() { h.declines = "" })
		time.Sleep(later + time.Minute)
		h.moved(3)
		if is := h.adopter.Trouble(); is != "" || !c.is().Empty {
			h.Errorf("%s, %+v", is, c.is())
		}
	})
}
