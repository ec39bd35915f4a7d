package accounting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"example.org/mta/internal/linelog"
)

// Page is records, newest first or, of Following, oldest first. It can have fewer than were asked for, even none, and a
// next page: then there was much to look through.
type Page struct {
	Records  [][]byte // a line of JSON each, without its line end
	Next     string   // cursor of the next page; "" when this is the last
	Looked   int64    // octets of the log
	Complete bool     // this is the last page
	Damage   error    // a *DamagedError: records are missing; nil: none are
}

// pageOctets bounds what is looked at for a page: about 50 ms.
const pageOctets = 8 << 20

// Newest returns a page of at most limit records in dir that q means, newest first; q.Last and q.Follow don't count.
// after is Page.Next of the page before, "" the newest. It reads the files from their ends, so that its time doesn't
// depend on their size; those that another program has compressed it reads whole.
func Newest(ctx context.Context, dir string, q Query, after string, limit int) (Page, error) {
	return newReader(ctx, dir, q, blocksOf).page(after, limit)
}

// Newest is as the function Newest, but finds a message that was recorded just now at once, too.
func (w *Writer) Newest(ctx context.Context, q Query, after string, limit int) (Page, error) {
	return w.reader(ctx, q).page(after, limit)
}

// ErrCursor is returned for a cursor that no page has given.
var ErrCursor = errors.New("is no cursor of the log")

func (r *reader) page(after string, limit int) (p Page, err error) {
	var before Position
	if after != "" {
		if before, err = ParsePosition(after); err != nil || before.String() != after {
			return p, fmt.Errorf("%q %w", after, ErrCursor)
		}
	}
	files, err := r.Dir.Files()
	if err != nil {
		return p, err
	}
	b := r.newest(before, limit, pageOctets)
	err = r.back(b, r.match.within(files))
	p = Page{Records: b.Found, Looked: b.Looked, Complete: !b.More}
	if b.More {
		p.Next = b.Before.String()
	}
	p.Damage = r.damaged()
	return p, err
}

// errPageFull ends the reading for a page that is full.
var errPageFull = errors.New("the page is full")

// Following returns a page of at most limit records that q means and that stand behind a position, oldest first; q.Last
// and q.Follow don't count. after is Page.Next of the page before; "" is the end of the log now, behind which there is
// none yet. Page.Next is never "".
func (w *Writer) Following(ctx context.Context, q Query, after string, limit int) (Page, error) {
	return w.reader(ctx, q).following(after, limit)
}

func (r *reader) following(after string, limit int) (p Page, err error) {
	files, err := r.Dir.Files()
	if err != nil {
		return p, err
	}
	var next Position
	if after == "" {
		if len(files) > 0 {
			newest := files[len(files)-1]
			end, err := r.Dir.EndOf(newest)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return p, err
			}
			next = Position{File: newest.ID(), Offset: end.End}
		}
		return Page{Next: next.String(), Complete: true}, nil
	}
	if next, err = ParsePosition(after); err != nil || next.String() != after {
		return p, fmt.Errorf("%q %w", after, ErrCursor)
	}
	for _, f := range files {
		switch {
		case f.ID() < next.File:
			continue
		case f.ID() > next.File: // the one before is complete
			next = Position{File: f.ID()}
		}
		next.Offset, err = r.Lines(f, next.Offset, func(line []byte, at Position) error {
			if len(p.Records) == limit || p.Looked >= pageOctets {
				return errPageFull
			}
			p.Looked += int64(len(line)) + 1
			if r.match.fits(line, at) {
				p.Records = append(p.Records, bytes.Clone(line))
			}
			return nil
		})
		if err != nil {
			break
		}
	}
	if p.Complete = err == nil; errors.Is(err, errPageFull) {
		err = nil
	}
	p.Next, p.Damage = next.String(), r.damaged()
	return p, err
}

// back reads files from their ends, or from within one of them.
func (r *reader) back(b *linelog.Newest, files []linelog.File) error {
	before := b.Before
	err := b.Read(files)
	for _, f := range files {
		if (before == (Position{}) || f.ID() < before.File) && (!b.More || f.ID() >= b.Before.File) && b.Pick == nil {
			r.ended(f)
		}
	}
	return err
}

// newest is a reading from a position back.
func (r *reader) newest(before Position, limit int, most int64) *linelog.Newest {
	b := &linelog.Newest{
		Reader: &r.Reader, Before: before, Wanted: limit, Most: most, Fits: r.match.fits, Time: timeOf,
		Stride: linelog.BlockSize,
	}
	if t := r.match.Since; !t.IsZero() {
		b.After = t.Add(-clockSlack)
	}
	if t := r.match.Until; !t.IsZero() {
		b.Until = t.Add(clockSlack)
	}
	if r.match.message != 0 {
		b.Pick = func(f linelog.File, use func([]byte, Position) error) error {
			_, err := r.lines(f, use)
			return err
		}
	}
	return b
}

// timeOf returns when the event of a record was; zero if the line is none.
func timeOf(line []byte) time.Time {
	if r, err := Parse(line); err == nil {
		return r.Time
	}
	return time.Time{}
}
