package sink

import (
	"net"
	"time"
)

// flight is replies that leave together.
type flight struct {
	due     time.Time
	replies []byte
	written chan struct{} // closed once all before it is out; nil when nobody asks
	cut     bool          // the connection is closed instead of writing
}

// lane is the way of delayed replies: what the session says is written when it is due, in
// order, while the session reads on. The session owns it and waits for its end.
type lane struct {
	in   chan flight
	done chan struct{}
}

// laneDepth bounds the flights under way on a connection. A session whose lane is full stops
// reading, as a server does whose client doesn't read.
const laneDepth = 4096

func newLane(conn func() net.Conn, stop <-chan struct{}, cut func()) *lane {
	l := &lane{in: make(chan flight, laneDepth), done: make(chan struct{})}
	go l.run(conn, stop, cut)
	return l
}

// run writes flights until in is closed. After a failed write, or a cut, it only drains.
func (l *lane) run(conn func() net.Conn, stop <-chan struct{}, cut func()) {
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	dead := false
	for f := range l.in {
		if d := time.Until(f.due); d > 0 && !dead {
			timer.Reset(d)
			select {
			case <-timer.C:
			case <-stop:
				dead = true
			}
		}
		switch {
		case dead:
		case f.cut:
			cut()
			dead = true
		case len(f.replies) > 0:
			_, err := conn().Write(f.replies)
			dead = err != nil
		}
		if f.written != nil {
			close(f.written)
		}
	}
}

// end lets what is under way leave, and waits.
func (l *lane) end() {
	close(l.in)
	<-l.done
}
