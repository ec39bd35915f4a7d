package events

import "bytes"

// Waves returns the batch's events in waves: those of one recipient of a message are in different waves, in their
// order. A sink that sends events one by one sends the next wave once the whole of the one before is taken, so that
// no event overtakes another of its recipient that was refused or lost.
func (b *Batch) Waves() [][]*Event {
	type whose struct{ message, recipient string }
	var waves [][]*Event
	next := make(map[whose]int, len(b.Events))
	for i := range b.Events {
		e := &b.Events[i]
		n := 0
		if e.Message != "" {
			w := whose{e.Message, string(recipient(e.Line))}
			n = next[w]
			next[w] = n + 1
		}
		if n == len(waves) {
			waves = append(waves, nil)
		}
		waves[n] = append(waves[n], e)
	}
	return waves
}

// recipient cuts the recipient out of a record without parsing it: quotes within texts are escaped, so the name can't
// stand in one.
func recipient(line []byte) []byte {
	_, rest, _ := bytes.Cut(line, []byte(`,"recipient":"`))
	// one within the address is escaped, and more of the address follows: it's only shorter
	i := bytes.IndexByte(rest, '"')
	return rest[:max(i, 0)]
}
