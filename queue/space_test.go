package queue

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/fair"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs/vfstest"
)

// TestLargeContentsLeaveMinFree brings in 14 contents of 45 KB side by side, as much of each by turns, on a
// disk that has room for half of them. Those that fit are accepted; the others are refused; small mail goes on being
// accepted all the time; and min_free is never touched, nor when the clients stop halfway.
func TestLargeContentsLeaveMinFree(t *testing.T) {
	for name, declared := range map[string]int64{"declared": 45 << 10, "undeclared": 0, "declared too small": 3 << 10} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T) { largeContents(t, declared) })
		})
	}
}

func largeContents(t *testing.T, declared int64) {
	const size, minFree, room = 45 << 10, 64 << 10, 6 * 64 << 10
	disk := &vfstest.Tight{FS: vfstest.Memory(), Dir: "/q", Below: []string{store.LargeDir}, Capacity: 4*16<<10 + minFree + minFree/2 + room}
	cfg := small(t, disk)
	cfg.MinFree = minFree
	q := open(t, cfg)
	accept(t, q, message(1, "example.net"), "first") // the segment is there
	drafts := make([]*Draft, 14)
	refused := make([]error, len(drafts))
	for i := range drafts {
		drafts[i] = q.Begin()
		drafts[i].Expect(fair.Party{}, declared)
	}
	for n := 0; n < size; n += 1 << 10 {
		for i, d := range drafts {
			if refused[i] == nil {
				_, refused[i] = d.Write(make([]byte, 1<<10))
			}
			if refused[i] != nil {
				d.Abort() // as submission does
			}
		}
		accept(t, q, message(1, "example.net"), "small mail")
		time.Sleep(10 * time.Millisecond)
	}
	taken := 0
	for i, d := range drafts {
		if refused[i] == nil {
			refused[i] = d.Commit(message(1, "example.net"))
		}
		switch err := refused[i]; {
		case err == nil:
			taken++
		case !errors.Is(err, ErrDiskFull):
			t.Errorf("draft %d: %v, want ErrDiskFull", i, err)
		}
	}
	t.Logf("%d of %d taken, %d KiB were free at the least, min_free is %d KiB", taken, len(drafts), disk.Lowest()>>10, minFree>>10)
	if taken < 5 || taken > 10 {
		t.Errorf("%d were taken, and there was room for 7 to 9", taken)
	}
	if disk.Lowest() < minFree {
		t.Errorf("%d octets were free at the least, want %d", disk.Lowest(), minFree)
	}
	if p := q.free.promised.Used() + q.free.written.Load(); p != 0 {
		t.Errorf("%d octets are still promised", p)
	}
	shut(t, q)
}

// TestLargeContentsAreShared: an owner that begins as many large contents as it can, and leaves them unfinished,
// written or not, leaves room for those of others.
func TestLargeContentsAreShared(t *testing.T) {
	for name, written := range map[string]int{"declared": 0, "half written": 22 << 10, "written": 45 << 10} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				const minFree, room = 64 << 10, 28 * 64 << 10
				disk := &vfstest.Tight{FS: vfstest.Memory(), Dir: "/q", Below: []string{store.LargeDir}, Capacity: 4*16<<10 + minFree + minFree/2 + room}
				cfg := small(t, disk)
				cfg.MinFree = minFree
				q := open(t, cfg)
				defer shut(t, q)
				begin := func(tenant string) (*Draft, error) {
					owner := fair.Party{Tenant: tenant}
					if err := q.Ready(owner, 45<<10); err != nil {
						return nil, err
					}
					d := q.Begin()
					d.Expect(owner, 45<<10)
					_, err := d.Write(make([]byte, written))
					return d, err
				}
				alone := 0
				for range 40 {
					d, err := begin("acme")
					if err != nil && !errors.Is(err, ErrSharedOut) {
						t.Fatal(err)
					}
					if err == nil {
						alone++
					}
					if d != nil {
						defer d.Abort()
					}
					time.Sleep(freeSpaceAge)
				}
				if alone < 19 || alone > 22 {
					t.Errorf("one that is alone has %d, of 29", alone)
				}
				for _, tenant := range []string{"other", "third"} {
					d, err := begin(tenant)
					if err != nil {
						t.Fatalf("%s: %v", tenant, err)
					}
					defer d.Abort()
				}
				if err := q.Ready(fair.Party{}, 45<<10); err != nil {
					t.Errorf("the relay's own: %v", err)
				}
			})
		})
	}
}

// TestReadyHoldsTheSizeAgainstTheRoom: what can't fit is refused before it comes.
func TestReadyHoldsTheSizeAgainstTheRoom(t *testing.T) {
	disk := &vfstest.Tight{FS: vfstest.Memory(), Dir: "/q", Below: []string{store.LargeDir}, Capacity: 1 << 20}
	cfg := small(t, disk)
	cfg.MinFree = 256 << 10
	q := open(t, cfg)
	defer shut(t, q)
	if err := q.Ready(fair.Party{}, 500<<10); err != nil {
		t.Errorf("500 KiB: %v", err)
	}
	if err := q.Ready(fair.Party{}, 700<<10); !errors.Is(err, ErrDiskFull) {
		t.Errorf("700 KiB: %v", err)
	}
	d := q.Begin()
	d.Expect(fair.Party{}, 400<<10)
	if err := q.Ready(fair.Party{}, 300<<10); !errors.Is(err, ErrDiskFull) {
		t.Errorf("300 KiB beside a content of 400: %v", err)
	}
	if err := q.Ready(fair.Party{}, 0); err != nil {
		t.Errorf("small mail: %v", err)
	}
	d.Abort()
	if err := q.Ready(fair.Party{}, 300<<10); err != nil {
		t.Errorf("300 KiB afterwards: %v", err)
	}
}

// TestWhatWasWrittenCountsAtOnce: what is free is looked at four times a second, and what was written since is
// neither promised nor free.
func TestWhatWasWrittenCountsAtOnce(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk := &vfstest.Tight{FS: vfstest.Memory(), Dir: "/q", Below: []string{store.LargeDir}, Capacity: 1 << 20}
		cfg := small(t, disk)
		cfg.MinFree = 256 << 10
		q := open(t, cfg)
		defer shut(t, q)
		d := q.Begin()
		defer d.Abort()
		d.Expect(fair.Party{}, 400<<10)
		if _, err := d.Write(make([]byte, 400<<10)); err != nil {
			t.Fatal(err)
		}
		if err := q.Ready(fair.Party{}, 300<<10); !errors.Is(err, ErrDiskFull) {
			t.Errorf("300 KiB beside 400 that were just written: %v", err)
		}
	})
}

// TestAFastDiskKeepsItsRoom: what small mail takes between two looks at the disk counts, too.
func TestAFastDiskKeepsItsRoom(t *testing.T) {
	inTime(t, func(t *testing.T) { // no time passes
		disk := &vfstest.Tight{FS: vfstest.Memory(), Dir: "/q", Below: []string{store.LargeDir}, Capacity: 1 << 20}
		cfg := small(t, disk)
		cfg.MinFree = 512 << 10
		q := open(t, cfg)
		defer shut(t, q)
		for i := 0; ; i++ {
			if err := commit(q, message(1, "box.example"), strings.Repeat("x", 1<<10)); errors.Is(err, ErrDiskFull) {
				break
			} else if err != nil || i == 1<<10 {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		if free := disk.Lowest(); free < cfg.MinFree-3*cfg.SegmentSize {
			t.Errorf("%d octets are free, and %d are kept back", free, cfg.MinFree)
		}
	})
}
