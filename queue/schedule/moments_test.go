package schedule

import "testing"

// The register of moments gives back its memory and answers for what is left.
func TestStarts(t *testing.T) {
	var s Moments
	for id := uint64(1); id <= 1000; id++ {
		s.Add(id*3, uint32(id))
	}
	s.Add(4, 44) // out of order, as never in practice
	for id := uint64(1); id <= 1000; id++ {
		if id%10 != 0 {
			s.Remove(id * 3)
			s.Remove(id * 3)
		}
	}
	if len(s.All) > 400 {
		t.Errorf("%d moments are kept of 101", len(s.All))
	}
	for id := uint64(1); id <= 1000; id++ {
		if at, ok := s.Find(id * 3); ok != (id%10 == 0) || ok && at != uint32(id) {
			t.Fatalf("start of %d: %d %v", id*3, at, ok)
		}
	}
	if at, ok := s.Find(4); !ok || at != 44 {
		t.Errorf("start of 4: %d %v", at, ok)
	}
}
