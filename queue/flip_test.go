package queue

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// TestFlipAnywhere flips one bit in each octet of a queue's newest segment, of its index, and of the file of a
// large content, after a clean end and after a kill. Whatever it hits, each message is delivered as it was,
// reported to its sender, or named.
func TestFlipAnywhere(t *testing.T) {
	for _, clean := range []bool{true, false} {
		for _, indexed := range []bool{false, true} {
			t.Run(fmt.Sprintf("clean=%v,indexed=%v", clean, indexed), func(t *testing.T) {
				disk, known := flipGround(t, clean, indexed)
				files, err := disk.List("/q")
				if err != nil {
					t.Fatal(err)
				}
				large, err := disk.List("/q/" + store.LargeDir)
				if err != nil {
					t.Fatal(err)
				}
				for i := range large {
					large[i].Name = filepath.Join(store.LargeDir, large[i].Name)
				}
				told := map[string]int{}
				for _, f := range append(files, large...) {
					end := min(f.Size, 3000) // what is behind is empty, or like what is before
					for off := int64(0); off < end; off += int64(*step) {
						inTime(t, func(t *testing.T) { flipOne(t, disk, f.Name, off, known, told) })
						if t.Failed() {
							return
						}
					}
				}
				t.Logf("messages by what became of them: %v", told)
			})
		}
	}
}

// flipGround makes a queue with a message in each state. It returns what each has for a content; the settled
// one is not among them.
func flipGround(t *testing.T, clean, indexed bool) (disk vfs.FS, known map[envelope.ID]string) {
	disk, known = vfstest.Memory(), map[envelope.ID]string{}
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, disk))
		take := func(body string, n int) envelope.ID {
			m := accept(t, q, message(n, "example.net"), body)
			known[m.ID] = body
			for next(t, q).Message.ID != m.ID {
			}
			return m.ID
		}
		settled := take("settled", 1)
		q.Settle(settled, []int{0}, Delivered)
		delete(known, settled)
		deferred := take(strings.Repeat("deferred ", 20), 2)
		q.Defer(deferred, []int{0}, time.Now().Add(time.Minute), Attempt{Reply: greylisted}, site("site"))
		q.Settle(deferred, []int{1}, Delivered)
		held := take("held", 1)
		q.Return(held, []int{0})
		if _, err := q.Change(Selector{IDs: []envelope.ID{held}}, Hold, false); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Change(Selector{IDs: []envelope.ID{held}}, Unhold, false); err != nil {
			t.Fatal(err)
		}
		take(strings.Repeat("large ", 500), 1)
		q.Return(take("", 1), []int{0})
		take(strings.Repeat("last ", 20), 1)
		time.Sleep(2 * proofDelay)
		if !clean {
			disk = copyOf(t, disk) // as it is when the process is killed
		}
		shut(t, q)
		if indexed {
			if !clean {
				disk = copyOf(t, disk)
			}
			shut(t, open(t, small(t, disk)))
		}
	})
	return disk, known
}

func copyOf(t *testing.T, fs vfs.FS) vfs.FS {
	t.Helper()
	twin := vfstest.Memory()
	for _, dir := range []string{"/q", "/q/" + store.LargeDir} {
		list, err := fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range list {
			name := filepath.Join(dir, info.Name)
			from, err := fs.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			to, err := twin.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, info.Size)
			if _, err := from.ReadAt(b, 0); err != nil && err != io.EOF {
				t.Fatal(err)
			}
			to.WriteAt(b, 0)
		}
	}
	return twin
}

func flipOne(t *testing.T, disk vfs.FS, name string, off int64, known map[envelope.ID]string, told map[string]int) {
	disk = copyOf(t, disk)
	flip(t, disk, filepath.Join("/q", name), off)
	book, became := &logBook{}, map[envelope.ID]string{}
	cfg := small(t, disk)
	cfg.Log = book.logger()
	cfg.OnUnreadable = func(id envelope.ID, _ int, _ error) { became[id] = "named" }
	q, err := Open(cfg)
	if err != nil {
		t.Errorf("%s, octet %d: %v", name, off, err)
		return
	}
	defer shut(t, q)
	time.Sleep(2 * time.Minute)
	for l := next0(t, q); l != nil; l = next0(t, q) {
		id := l.Message.ID
		switch body, isKnown := known[id]; {
		case l.Why == Damaged:
			became[id] = "reported"
		case isKnown && bodyOrDamage(q, id) != body:
			q.Defer(id, indexes(l), time.Now(), Attempt{Reply: greylisted}, parking.Key{})
			continue // it comes again, to be reported
		default:
			became[id] = "delivered"
		}
		q.Settle(id, indexes(l), Delivered)
	}
	for id := range known {
		if _, err := q.Get(id); became[id] == "" && err == nil {
			became[id] = "held" // what was lost is that an operator released it
		}
		if became[id] == "" {
			t.Errorf("%s, octet %d: message %s was lost:\n%s", name, off, id, book)
			return
		}
		told[became[id]]++
	}
}

// bodyOrDamage is the content of a message, or something that no content is.
func bodyOrDamage(q *Queue, id envelope.ID) string {
	r, err := q.Body(id)
	if err != nil {
		return "damaged"
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return "damaged"
	}
	return string(b)
}

// TestSalvageNoticesDamagedStates: the states of a moved record have a sum of their own. With one bit of them turned
// the recipients' states are not taken from it, though they may still look like states.
func TestSalvageNoticesDamagedStates(t *testing.T) {
	seg := store.SegmentID{Number: 1, Salt: 9}
	m := message(2, "example.net")
	env := store.AppendEnvelope(nil, store.CodecVersion, m)
	c := store.Content{Env: env, Body: []byte("body")}
	c.Prelude = store.Prelude{Form: store.CodecVersion, Rcpts: 2, EnvLen: uint32(len(env)), EnvCRC: store.Checksum(0, env), BodyLen: 4}
	states := []store.RecipientState{
		{Rcpt: 0, Attempts: 3, Due: 1 << 30, Key: "site", Replied: true, Last: Attempt{Reply: greylisted}}, {Rcpt: 1, Due: 7},
	}
	payload := store.AppendMoved(nil, store.CodecVersion, 5, &c, 1<<30, states)
	record := func() []byte {
		b, start := store.BeginRecord(nil)
		return store.FinishRecord(append(b, payload...), start, seg, 0, store.KindMoved, 5)
	}
	first := store.HeaderSize + store.PreludeSize + len(env)
	last := first + len(store.AppendStates(nil, store.CodecVersion, 1<<30, states))
	if r, err := store.Salvage(bytes.NewReader(record()), seg, 0, 1<<20); err != nil || !r.Sound || !r.Moved || r.ID != 5 {
		t.Fatalf("a record without damage: %+v, %v", r, err)
	}
	readable := 0
	for at := first; at < last; at++ {
		b := record()
		b[at] ^= 1
		if _, _, err := store.DecodeStates(b[first:last]); err == nil {
			readable++
		}
		if r, err := store.Salvage(bytes.NewReader(b), seg, 0, 1<<20); err != nil || r.Sound || r.ID != 5 {
			t.Errorf("octet %d of the states: sound %v, id %d, %v", at-first, r.Sound, r.ID, err)
		}
	}
	if readable == 0 {
		t.Error("no flip left states that can be read: the sum is not what found it")
	}
}
