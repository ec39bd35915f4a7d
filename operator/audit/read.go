package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/backward"
)

// Query says which lines are wanted. All that is set must fit.
type Query struct {
	Since  time.Time `q:"since" help:"not before this <time>"`
	Until  time.Time `q:"until" help:"before this <time>"`
	Who    string    `q:"who" help:"of this <user>, user id or address"`
	Action string    `q:"action" help:"this <action>, or all that begin with these words: queue, queue hold"`
	After  string    `q:"after" help:"continue after the previous page (<cursor>)"` // Page.Next
	Limit  int       `q:"limit" default:"50" min:"1" max:"1000" help:"actions on the page"`
}

// Page is lines, newest first.
type Page struct {
	Actions []Line `json:"actions"`        // newest first
	Next    string `json:"next,omitempty"` // after of the next page; left out when this is the last
	Looked  int64  `json:"looked"`         // octets of the audit log that were looked at
	// lines that can't be read, among those; left out when there are none
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
	files, err := listFiles(dir)
	if err != nil {
		return p, err
	}
	p.Actions = []Line{}
	for _, f := range slices.Backward(files) {
		if !at.begun.IsZero() && f.begun.After(at.begun) {
			continue
		}
		end := int64(-1)
		if f.begun.Equal(at.begun) {
			end = at.offset
		}
		more, err := p.readFile(ctx, f, end, &q)
		if err != nil || more {
			return p, err
		}
	}
	p.Complete = true
	return p, nil
}

// Read is as the function Read.
func (l *Log) Read(ctx context.Context, q Query) (Page, error) { return Read(ctx, l.cfg.Dir, q) }

// readFile adds the lines of a file that end at or before an offset; -1 is all of them. It reports whether Read is to
// end: the page is full, or what is left is too old.
func (p *Page) readFile(ctx context.Context, f logFile, end int64, q *Query) (ended bool, err error) {
	in, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // deleted meanwhile
	}
	if err != nil {
		return false, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return false, err
	}
	if end < 0 || end > info.Size() {
		end = info.Size()
	}
	lines := backward.New(in, end, maxLine)
	older := 0 // lines in a row
	for last := end; ; {
		if err := ctx.Err(); err != nil {
			return true, err
		}
		text, at, err := lines.Next()
		if err == io.EOF {
			p.Looked += last
			return false, nil
		}
		if err != nil {
			return true, err
		}
		whole := at+int64(len(text)) < last // a crash can leave the last one without its end
		p.Looked += last - at
		last = at
		switch line, ok := parse(text); {
		case !ok && whole && len(text) > 0:
			p.Damaged++
		case !ok:
		case !q.over(&line):
			if older = 0; q.fits(&line) {
				p.Actions = append(p.Actions, line)
			}
		default:
			if older++; older > 1 { // the time of one alone may be damaged
				p.Complete = true
				return true, nil
			}
		}
		if len(p.Actions) >= q.Limit || p.Looked >= maxLook {
			p.Next = cursor{f.begun, at}.String()
			return true, nil
		}
	}
}

// over reports whether all lines before this one are too old.
func (q *Query) over(l *Line) bool {
	return !q.Since.IsZero() && l.Time.Before(q.Since.Add(-clockSlack)) && l.Outcome != Unknown
}

func (q *Query) fits(l *Line) bool {
	return l.Outcome != begun &&
		(q.Since.IsZero() || !l.Time.Before(q.Since)) && (q.Until.IsZero() || l.Time.Before(q.Until)) &&
		(q.Action == "" || l.Action == q.Action || strings.HasPrefix(l.Action, q.Action+" ")) &&
		(q.Who == "" || q.Who == l.User || q.Who == l.Address || l.UID != nil && q.Who == strconv.FormatUint(uint64(*l.UID), 10))
}

// cursor is a place in a log: all before it is older.
type cursor struct {
	begun  time.Time // of the file
	offset int64
}

func (c cursor) String() string {
	return c.begun.Format(nameLayout) + "-" + strconv.FormatInt(c.offset, 10)
}

func parseCursor(text string) (c cursor, err error) {
	if text == "" {
		return c, nil
	}
	file, offset, _ := strings.Cut(text, "-")
	if c.begun, err = time.Parse(nameLayout, file); err == nil {
		c.offset, err = strconv.ParseInt(offset, 10, 64)
	}
	if err != nil || c.String() != text || c.offset < 0 {
		return cursor{}, fmt.Errorf("%q %w", text, ErrCursor)
	}
	return c, nil
}

// eachLine calls use with the lines of a file, oldest first, and returns where the last whole one ends.
func eachLine(path string, use func(Line)) (size int64, err error) {
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer in.Close()
	for r := bufio.NewReaderSize(in, maxLine); ; {
		text, err := r.ReadSlice('\n')
		if err == io.EOF {
			return size, nil
		}
		if err != nil && err != bufio.ErrBufferFull {
			return size, err
		}
		size += int64(len(text))
		if line, ok := parse(text); ok {
			use(line)
		}
	}
}
