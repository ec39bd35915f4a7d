package link

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"example.org/mta/cluster/member"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/share"
)

// Message goes from one node to another. It is one of member's, or has a row of a key.
type Message struct {
	member.Message
	Met *once.Row `json:",omitempty"` // of the receiver, without an answer: another node has met it
}

// Bounds of a message. A limit's item has up to 200 octets and its name: what a node asks of one shard fits for 10,000
// limits with names of 60 octets.
const (
	maxFrame  = 4 << 20
	maxItems  = 20_000
	maxCommas = 7 * maxItems // each item has less
	maxName   = 256          // octets
	maxNumber = 1e15
)

// encode returns a frame: the length of the text in four octets, and the text, in JSON.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err == nil && len(text) > maxFrame {
		err = fmt.Errorf("a message of %d octets is too large (at most %d)", len(text), maxFrame)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), err
}

// decode reads a frame. It takes as much memory as arrives. begun is called when a frame has begun.
func decode(r io.Reader, most uint32, begun func(), v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return err
	}
	begun()
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > most {
		return fmt.Errorf("a message of %d octets is too large (at most %d)", size, most)
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && uint32(len(text)) < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	// A list of a million zeros would take 50 times its length before the items are counted.
	if n := bytes.Count(text, []byte(",")); n > maxCommas {
		return fmt.Errorf("a message has %d values (at most %d)", n, maxCommas)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("a message can't be read: %w", err)
	}
	return nil
}

// Write writes a frame of a talk.
func Write(w io.Writer, v any) error {
	frame, err := encode(v)
	if err == nil {
		_, err = w.Write(frame)
	}
	return err
}

// Read reads a frame of a talk, of 4 MiB at most.
func Read(r io.Reader, v any) error { return decode(r, maxFrame, func() {}, v) }

// check finds what no node sends to node here. Whether there is such a limit, and so much of it, is checked by those
// who have it. What its sender has passed on is not passed on again.
func (m *Message) check(from, here uint16) error {
	kinds := 0
	for _, is := range []bool{m.Ask != nil, m.Answer != nil, m.Nudge, m.Met != nil} {
		if is {
			kinds++
		}
	}
	passed := m.Via == from && m.From != from && m.From != here || m.Via == here && m.To != here && m.To != from
	switch {
	case m.From != from && m.Via != from:
		return fmt.Errorf("a message is in the name of node %d", m.From)
	case m.To != here && m.Via != here:
		return fmt.Errorf("a message is for node %d", m.To)
	case m.Via != 0 && !(passed && (m.Ask != nil || m.Answer != nil)):
		return fmt.Errorf("a message from node %d to node %d goes through node %d", m.From, m.To, m.Via)
	case m.Shard < 0 || m.Shard >= owner.Shards:
		return fmt.Errorf("a message names shard %d (want 0 to %d)", m.Shard, owner.Shards-1)
	case kinds != 1:
		return fmt.Errorf("a message has %d contents (want 1)", kinds)
	}
	var c checker
	if a := m.Ask; a != nil {
		c.count(len(a.Shares))
		each(a.Shares, func(i *share.Item) { c.name(i.Name); c.numbers(i.Held, i.Want, int64(i.Content)) })
	}
	if a := m.Answer; a != nil {
		c.count(len(a.Shares))
		each(a.Shares, func(g *share.Grant) { c.name(g.Name); c.numbers(g.Units, int64(g.Content)) })
	}
	if m.Met != nil {
		c.name(m.Met.Key)
		if m.Met.Note != "" {
			c.name(m.Met.Note)
		}
		if m.Met.Done || m.Met.Node != here {
			c.fail("the row of a key is not an open one of node %d", here)
		}
	}
	return c.err
}

func each[T any](all []T, f func(*T)) {
	for i := range all {
		f(&all[i])
	}
}

// checker has the first fault of a message.
type checker struct{ err error }

func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *checker) count(n int) {
	if n > maxItems {
		c.fail("a message has %d items (at most %d)", n, maxItems)
	}
}

func (c *checker) name(s string) {
	if s == "" || len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		c.fail("a message has the name %.40q, of %d octets (want 1 to %d, all printable)", s, len(s), maxName)
	}
}

func (c *checker) numbers(all ...int64) {
	for _, n := range all {
		if n < 0 || n > maxNumber {
			c.fail("a message has the number %d (want 0 to %.0f)", n, maxNumber)
		}
	}
}
