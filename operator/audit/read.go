package audit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/linelog"
)

// Query says which lines are wanted. All that is set must fit.
type Query struct {
	Since  time.Time `q:"since" help:"not before this <time>"`
	Until  time.Time `q:"until" help:"before this <time>"`
	Who    string    `q:"who" help:"by this <user>, user id or address"`
	Action string    `q:"action" help:"this <action>, or all that begin with these words, such as queue"`
	After  string    `q:"after" help:"continue after the previous page (<cursor>)"` // Page.Next
	Limit  int       `q:"limit" default:"50" min:"1" max:"1000" help:"actions on the page"`
}

// Page is lines, newest first.
type Page struct {
	Actions []Line `json:"actions"`        // newest first
	Next    string `json:"next,omitempty"` // after of the next page; left out when this is the last
	Looked  int64  `json:"looked"`         // octets of the audit log that were looked at
	// places among those where lines can't be read, or are missing; left out when there are none
	Damaged  int  `json:"damaged,omitempty"`
	Complete bool `json:"complete"` // this is the last page
}

// maxLook bounds the octets that a page looks at.
const maxLook = 8 << 20

// clockSlack is how far lines may be out of order.
const clockSlack = time.Hour

// ErrCursor is returned for a cursor that no page has given.
var ErrCursor = errors.New("is no cursor of the audit log")

// Read returns a page of the lines in a directory. It needs no Log: it reads what is in the files.
func Read(ctx context.Context, dir string, q Query) (p Page, err error) {
	at, err := parseCursor(q.After)
	if err != nil {
		return p, err
	}
	r := linelog.Reader{Ctx: ctx, Dir: logDir(dir)}
	files, err := r.Dir.Files()
	if err != nil {
		return p, err
	}
	var line Line // the last one
	var whole bool
	var chain linelog.Chain
	b := linelog.Newest{
		Reader: &r, Before: linelog.Position(at), Wanted: q.Limit, Most: maxLook, Stride: 1,
		Fits: func(text []byte, at linelog.Position) bool {
			damaged := false
			if line, whole, damaged = judge(&chain, text, at); damaged {
				p.Damaged++
			}
			return whole && q.fits(&line)
		},
		Time: func([]byte) time.Time {
			if !whole || line.Outcome == Unknown { // it has the time of its beginning
				return q.Since
			}
			return line.Time
		},
	}
	if !q.Since.IsZero() {
		b.After = q.Since.Add(-clockSlack)
	}
	err = b.Read(files)
	p.Actions, p.Looked = make([]Line, len(b.Found)), b.Looked
	for i, text := range b.Found {
		p.Actions[i], _ = parse(text)
	}
	if p.Complete = err == nil && !b.More; b.More {
		p.Next = cursor(b.Before).String()
	}
	return p, err
}

// judge reads a line. It is damaged unless it is what was written and stands behind the one that was written before.
func judge(chain *linelog.Chain, text []byte, at linelog.Position) (line Line, ok, damaged bool) {
	sound, _, damaged := chain.Line(text, at)
	if sound {
		line, ok = parse(text)
	}
	return line, ok, damaged || !ok
}

// Read is as the function Read.
func (l *Log) Read(ctx context.Context, q Query) (Page, error) { return Read(ctx, l.cfg.Dir, q) }

func (q *Query) fits(l *Line) bool {
	return l.Outcome != begun &&
		(q.Since.IsZero() || !l.Time.Before(q.Since)) && (q.Until.IsZero() || l.Time.Before(q.Until)) &&
		(q.Action == "" || l.Action == q.Action || strings.HasPrefix(l.Action, q.Action+" ")) &&
		(q.Who == "" || q.Who == l.User || q.Who == l.Address ||
			l.UID != nil && q.Who == strconv.FormatUint(uint64(*l.UID), 10))
}

// cursor is a place in a log: all before it is older.
type cursor linelog.Position

func (c cursor) String() string {
	return time.Unix(c.File, 0).UTC().Format(linelog.Layout) + "-" + strconv.FormatInt(c.Offset, 10)
}

func parseCursor(text string) (c cursor, err error) {
	if text == "" {
		return c, nil
	}
	file, offset, _ := strings.Cut(text, "-")
	begun, err := time.Parse(linelog.Layout, file)
	if err == nil {
		c.File = begun.Unix()
		c.Offset, err = strconv.ParseInt(offset, 10, 64)
	}
	if err != nil || c.String() != text || c.Offset < 0 {
		return cursor{}, fmt.Errorf("%q %w", text, ErrCursor)
	}
	return c, nil
}
