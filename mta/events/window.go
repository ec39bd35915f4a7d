package events

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/mta/accounting"
)

const (
	// maxBatchBytes bounds the records of a batch; one record may be larger.
	maxBatchBytes = 1 << 20
	// eventBytes is what an event takes besides its line.
	eventBytes = 160
)

// Filter selects records: those with one of the values of each list that is not empty.
type Filter struct {
	Types, Tenants, Classes []string
}

func (f *Filter) wants(r *fields) bool {
	return has(f.Types, r.kind) && has(f.Classes, r.class) && has(f.Tenants, r.tenant)
}

func has(list []string, word []byte) bool {
	if len(list) == 0 {
		return true
	}
	return slices.Contains(list, string(word))
}

// shape is how the events of a stream are put into batches.
type shape struct {
	filter Filter
	batch  int // events
	lanes  int
	linger time.Duration
	format string // its name: equal batches are encoded once
}

// key is equal for shapes that are equal.
func (s *shape) key() string {
	var b strings.Builder
	for _, list := range [][]string{s.filter.Types, s.filter.Tenants, s.filter.Classes} {
		fmt.Fprintf(&b, "%q ", slices.Sorted(slices.Values(list)))
	}
	fmt.Fprint(&b, s.batch, s.lanes, s.linger, s.format)
	return b.String()
}

// window is what a stream sends at a time: a batch for each lane. It is answered as a whole, then the
// cursor moves to its end.
type window struct {
	from, to Position // of its events; the next window begins at to, or later
	batches  []*Batch // one for each lane, those without events included
	bytes    []int    // of each batch
	events   int
	size     int       // octets in all
	gap      bool      // it announces a gap to the receiver
	first    time.Time // when its first event happened
	number   int       // counts the windows of a selection
	users    int       // that have yet to take it; guarded by the head
	next     *window   // that of the selection after it, once this is full
	arena    []byte    // memory for lines
	chunk    int       // how much of it to begin with
	room     []int     // for events of each lane
}

func newWindow(s *shape, from Position) *window {
	w := &window{from: from, to: from, batches: make([]*Batch, s.lanes), bytes: make([]int, s.lanes),
		room: make([]int, s.lanes)}
	for i := range w.batches {
		w.batches[i] = &Batch{body: new(body)}
	}
	return w
}

// expect makes room for about as many events as another window has.
func (w *window) expect(like *window) {
	const spare = 8 // for one in so many
	for i, b := range like.batches {
		if n := len(b.Events); n > 0 {
			w.room[i] = n + n/spare
		}
	}
	w.chunk = min(like.size-eventBytes*like.events, maxChunk)
}

// maxChunk bounds the memory that lines get at a time.
const maxChunk = 256 << 10

// seed makes a message's lane the same in all windows of a process.
var seed = maphash.MakeSeed()

// laneOf gives the lane of a message. Records of no message have the first.
func laneOf(message []byte, lanes int) int {
	if lanes == 1 || len(message) == 0 {
		return 0
	}
	return int(maphash.Bytes(seed, message) % uint64(lanes))
}

// add puts a record in, unless its lane is full: then the window is.
func (w *window) add(s *shape, r *fields, at, next Position, line []byte, node string) bool {
	lane := laneOf(r.message, s.lanes)
	b := w.batches[lane]
	if n := len(b.Events); n > 0 && (n >= s.batch || w.bytes[lane]+len(line) > maxBatchBytes) {
		return false
	}
	if w.events == 0 {
		w.from, w.first = at, r.time()
	}
	e := Event{
		ID: eventID(r, at, node), Line: w.keep(line), Type: intern(r.kind),
		Message: string(r.message), Tenant: string(r.tenant), Class: string(r.class), Time: r.time(),
	}
	if b.Events == nil && w.room[lane] > 0 {
		b.Events = make([]Event, 0, w.room[lane])
	}
	b.Events = append(b.Events, e)
	w.bytes[lane] += len(line) + eventBytes
	w.size += len(line) + eventBytes
	w.events++
	w.to = next
	return true
}

// keep copies a line into memory of the window. Chunks grow with the window, so a small one is small.
func (w *window) keep(line []byte) []byte {
	if cap(w.arena)-len(w.arena) < len(line) {
		w.arena = make([]byte, 0, max(len(line), min(2*cap(w.arena), maxChunk), w.chunk, 2<<10))
		w.chunk = 0
	}
	start := len(w.arena)
	w.arena = append(w.arena, line...)
	return slices.Clip(w.arena[start:])
}

// eventID is the id in the record. Records of earlier versions have none: theirs is made as package
// accounting makes it.
func eventID(r *fields, at Position, node string) string {
	if len(r.id) > 0 {
		return string(r.id)
	}
	return accounting.EventID(node, at)
}

// intern gives the types of records without memory for each.
func intern(word []byte) string {
	if s, ok := words[string(word)]; ok {
		return s
	}
	return string(word)
}

// words are the types of records, and of what streams add.
var words = func() map[string]string {
	m := make(map[string]string)
	for _, t := range accounting.Types {
		m[string(t)] = string(t)
	}
	return m
}()

// of gives a batch to a stream. Its id is the same whenever it has the same events, after a restart too.
func (b *Batch) of(stream string) *Batch {
	h := fnv.New128a()
	for _, s := range []string{stream, b.Events[0].ID, b.Events[len(b.Events)-1].ID, strconv.Itoa(len(b.Events))} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return &Batch{ID: "evt_" + hex.EncodeToString(h.Sum(nil)), Stream: stream, Events: b.Events, body: b.body}
}
