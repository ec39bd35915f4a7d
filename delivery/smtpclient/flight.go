package smtpclient

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	flightSize = 32 << 10 // a flight of so much leaves without waiting for more
	chunkSize  = 32 << 10 // content octets in one BDAT
	maxBlock   = 4 * flightSize
)

// flight is what goes out in one write: commands and content of as many transactions as may be
// under way. Only the writer touches it.
type flight struct {
	buf    []byte
	block  *block        // where buf comes from; nil while it is empty
	base   int64         // the position in the stream of buf[0]
	staged []expectation // replies that are owed once it has left
	cutoff time.Time     // the socket's write deadline
}

// block is a buffer that connections take turns to use: an idle one, or one that waits for replies,
// holds none.
type block struct{ b []byte }

var blocks = sync.Pool{New: func() any { return &block{b: make([]byte, 0, chunkSize)} }}

// position is where in the stream the next octet will stand.
func (f *flight) position() int64 { return f.base + int64(len(f.buf)) }

// open makes sure that there is a buffer.
func (f *flight) open() {
	if f.block == nil {
		f.block = blocks.Get().(*block)
		f.buf = f.block.b[:0]
	}
}

// close gives the buffer back; what is in it has left.
func (f *flight) close() {
	f.base, f.staged = f.position(), f.staged[:0]
	if f.block == nil {
		return
	}
	if cap(f.buf) <= maxBlock { // one that a long envelope has blown up is left to the collector
		f.block.b = f.buf[:0]
		blocks.Put(f.block)
	}
	f.buf, f.block = nil, nil
}

// flush sends the flight. It reports false when nothing more can be sent.
func (c *Conn) flush() bool {
	if len(c.out.buf) == 0 {
		return !c.isStopped()
	}
	now := time.Now()
	if !c.commit(now) {
		return false
	}
	c.limitWrite(now)
	n, err := c.conn.Write(c.out.buf)
	c.carried.Add(int64(n))
	if err != nil {
		c.lostWriting(n, err)
		return false
	}
	c.out.close()
	if took := time.Since(now); took > time.Second {
		c.extend() // the host's time runs from when it could have read the last octet
	}
	return true
}

// commit makes known what is about to leave: from now on replies to it may come, and it counts
// as sent.
func (c *Conn) commit(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped {
		return false
	}
	idle := c.mu.expected.len() == 0
	c.mu.expected.push(c.out.staged)
	c.mu.sent = c.out.position()
	if idle {
		c.arm(now)
	}
	return true
}

// limitWrite bounds the next write. The deadline is moved only when less than the time-out is left:
// a write has between once and one and a quarter times Timeouts.Block.
func (c *Conn) limitWrite(now time.Time) {
	if c.out.cutoff.Sub(now) < c.cfg.Timeouts.Block {
		c.out.cutoff = now.Add(c.cfg.Timeouts.Block * 5 / 4)
		_ = c.conn.SetWriteDeadline(c.out.cutoff)
	}
}

// extend gives the host its full time again for the next reply.
func (c *Conn) extend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arm(time.Now())
}

func (c *Conn) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.stopped
}

// appendBDAT adds the command that n octets follow.
func appendBDAT(b []byte, n int, last bool) []byte {
	b = append(b, "BDAT "...)
	b = strconv.AppendInt(b, int64(n), 10)
	if last {
		b = append(b, " LAST"...)
	}
	return append(b, '\r', '\n')
}

// wholeLines makes sure that the last chunk, which begins at mark and has its octets from header
// on, ends with a line end.
func wholeLines(buf []byte, mark, header int, lines *lineChecker) (whole []byte, newHeader int, err error) {
	missing, err := lines.end()
	if err != nil || missing == "" {
		return buf, header, err
	}
	buf = append(buf, missing...)
	command := appendBDAT(nil, len(buf)-header, true)
	buf = slices.Replace(buf, mark, header, command...)
	return buf, mark + len(command), nil
}
