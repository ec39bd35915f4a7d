package queue

import (
	"bytes"
	"testing"

	"example.org/mta/queue/store"
)

// Notes share memory, but a large one must not make that memory grow for good: moved messages are as
// large as their content.
func TestLargeNotesLeaveNoMemoryBehind(t *testing.T) {
	q := open(t, Config{Dir: t.TempDir()})
	w := newWriter(q, 1000) // one that doesn't run
	sizes := []int{10, 4000, 300, 100_000, 30_000, 1}
	for i := range 600 {
		w.note(store.KindSettled, uint64(i), nil, 0, func(b []byte) []byte {
			return append(b, bytes.Repeat([]byte{byte(i)}, sizes[i%len(sizes)])...)
		})
		if cap(w.arena) > arenaSize {
			t.Fatalf("after note %d, %d octets are kept for the next", i, cap(w.arena))
		}
	}
	for i := range w.notes {
		want := bytes.Repeat([]byte{byte(i)}, sizes[i%len(sizes)])
		if got := w.notes[i].payload; !bytes.Equal(got, want) {
			t.Fatalf("note %d has %d octets of another", i, len(got))
		}
	}
}
