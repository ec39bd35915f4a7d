package moving

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"example.org/mta/cluster/link"
)

// The requests of a talk. The archive of all but Offer follows the request, in chunks.
const (
	verbOffer = "offer" // may mail come?
	verbKeys  = "keys"
	verbTake  = "take"
	verbLook  = "look" // what was taken of this before? Nothing more is taken of it by any earlier request.
)

type request struct {
	Verb string
	Name string // the nodeid of the relay whose mail it is
	Of   uint16 `json:",omitempty"` // the node whose mail it is; 0: the sender
}

type answer struct {
	Refused  string     `json:",omitempty"` // why no mail is taken now, or no more; Taken is true all the same
	Name     string     `json:",omitempty"` // the nodeid of the receiver
	Taken    []Taken    `json:",omitempty"`
	Declined []Declined `json:",omitempty"`
}

const (
	chunkOctets = 64 << 10
	broken      = 1<<32 - 1 // in place of a length: the sender could not go on
)

// chunks writes an archive in chunks, each of which has its time.
type chunks struct {
	conn net.Conn
	buf  *bufio.Writer
}

func newChunks(conn net.Conn) *chunks {
	c := &chunks{conn: conn}
	c.buf = bufio.NewWriterSize(c, chunkOctets)
	return c
}

// Write writes a chunk; archives go to buf.
func (c *chunks) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		part := p[n:min(n+chunkOctets, len(p))]
		err = c.frame(uint32(len(part)), part)
		n += len(part)
	}
	return n, err
}

func (c *chunks) frame(head uint32, part []byte) error {
	c.conn.SetDeadline(time.Now().Add(patience))
	_, err := c.conn.Write(append(binary.BigEndian.AppendUint32(nil, head), part...))
	return err
}

// end ends the archive, which is whole unless failed is an error.
func (c *chunks) end(failed error) error {
	if failed != nil {
		_ = c.frame(broken, nil)
		return failed
	}
	if err := c.buf.Flush(); err != nil {
		return err
	}
	return c.frame(0, nil)
}

// whole is how long an archive may take: others wait for their turn meanwhile.
const whole = 5 * time.Minute

// reader reads an archive in chunks.
type reader struct {
	conn net.Conn
	end  time.Time
	left uint32
	err  error
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	end := time.Now().Add(patience)
	if end.After(r.end) {
		end = r.end
	}
	r.conn.SetDeadline(end)
	if r.left == 0 {
		var head [4]byte
		if _, r.err = io.ReadFull(r.conn, head[:]); r.err != nil {
			return 0, r.broke()
		}
		switch r.left = binary.BigEndian.Uint32(head[:]); {
		case r.left == 0:
			r.err = io.EOF
		case r.left == broken:
			r.err = errors.New("the sender could not go on")
		case r.left > chunkOctets:
			r.err = fmt.Errorf("a chunk has %d octets (at most %d)", r.left, chunkOctets)
		}
		if r.err != nil {
			return 0, r.err
		}
	}
	n, err := r.conn.Read(p[:min(len(p), int(r.left))])
	r.left -= uint32(n)
	if err != nil {
		r.err = err
		return n, r.broke()
	}
	return n, nil
}

// broke has an end in the middle look like one.
func (r *reader) broke() error {
	if errors.Is(r.err, io.EOF) {
		r.err = io.ErrUnexpectedEOF
	}
	return r.err
}

// ask sends a request, with an archive unless write is nil, and waits a while for the answer.
func ask(conn net.Conn, q request, wait time.Duration, write func(io.Writer) error) (a answer, err error) {
	conn.SetDeadline(time.Now().Add(patience))
	if err := link.Write(conn, q); err != nil {
		return a, err
	}
	if write != nil {
		c := newChunks(conn)
		if err := c.end(write(c.buf)); err != nil {
			return a, err
		}
	}
	conn.SetDeadline(time.Now().Add(wait))
	err = link.Read(conn, &a)
	return a, err
}
