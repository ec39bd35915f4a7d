package queue

import (
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/mta/queue/vfs/vfstest"
)

// TestTroubleIsLoggedOnce: a disk that fails under load for minutes, in each way that is met on
// every message or every second, leaves a line for its begin and one for its end.
func TestTroubleIsLoggedOnce(t *testing.T) {
	for name, x := range map[string]struct {
		fails func(vfstest.Op, string) bool
		keep  bool // what is accepted stays queued
	}{
		"writes":       {fails: func(op vfstest.Op, name string) bool { return op == vfstest.Write && isSegment(name) }},
		"all":          {fails: func(op vfstest.Op, name string) bool { return op != vfstest.Open && op != vfstest.Read }},
		"new segments": {fails: func(op vfstest.Op, name string) bool { return op == vfstest.Create && isSegment(name) }, keep: true},
		"deleting":     {fails: func(op vfstest.Op, name string) bool { return op == vfstest.Remove || op == vfstest.Rename }},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				disk, book := &vfstest.Faulty{FS: vfstest.Memory()}, &logBook{}
				cfg := small(t, disk)
				cfg.Log = book.logger()
				q := open(t, cfg)
				defer shut(t, q)
				var on atomic.Bool
				disk.Decide(func(op vfstest.Op, name string) *vfstest.Fault {
					if on.Load() && x.fails(op, name) {
						return &vfstest.Fault{Err: syscall.ENOSPC}
					}
					return nil
				})
				work := func() (refused int) {
					for range 600 {
						m := message(1, "example.net")
						if err := commit(q, m, strings.Repeat("x", 1000)); err != nil {
							refused++
						} else if !x.keep {
							q.Settle(next(t, q).Message.ID, []int{0}, Delivered)
						}
						time.Sleep(100 * time.Millisecond)
					}
					return refused
				}
				work()
				on.Store(true)
				refused := work()
				on.Store(false)
				if after := work(); after > 10 {
					t.Errorf("%d messages were refused when all was well", after)
				}
				t.Logf("%d refused:\n%s", refused, book)
				begins := regexp.MustCompile(`level=(?:WARN|ERROR) msg="([^"]*)"`).FindAllString(book.String(), -1)
				slices.Sort(begins)
				if ends := strings.Count(book.String(), "failures="); refused == 0 || len(begins) == 0 || ends != len(begins) {
					t.Errorf("%d messages were refused; %d lines and %d ends", refused, len(begins), ends)
				}
				if len(slices.Compact(begins)) != len(begins) {
					t.Errorf("a line came more than once")
				}
			})
		})
	}
}
