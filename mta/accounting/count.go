package accounting

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"example.org/mta/bounce"
	"example.org/mta/internal/linelog"
	"example.org/mta/internal/reply"
)

// properties are what records can be counted by, and the keys under which they have it.
var properties = map[string]string{
	"class": "bounce_classification", "reply": "response", "site": "site", "provider": "provider_name",
	"domain": "queue", "tenant": "tenant", "campaign": "campaign", "source": "egress_source", "pool": "egress_pool",
	"type": "type",
}

// Counts is how many records have each value of a property.
type Counts struct {
	Records int64   // that fit; one that stands for several refusals counts as these
	Groups  []Group // most first
	Others  int64   // records of groups that are left out
	Left    int     // how many groups are left out
	Exact   bool    // false: there were too many groups, so that counts can be too low, with the rest in Others
	Looked  int64   // octets of the log
	Damage  error   // a *DamagedError: records are missing; nil: none are
}

// Group is the records with one value.
type Group struct {
	Name  string // the value, "" for records without one; of replies, their class
	Count int64
	Reply reply.Reply // one of the replies that differ in numbers and addresses only
}

const (
	// mostGroups bounds the memory of a count: some 1 KiB for each, for each core.
	mostGroups = 10_000
	// mostText is how many octets of a reply count.
	mostText = 500
)

// Count counts the records in dir that q means by one of the properties, and returns the most frequent values; q.Last
// and q.Follow don't count. Several files are read at a time. It gives way to other goroutines, and ends with ctx.
func Count(ctx context.Context, dir string, q Query, by string, most int) (Counts, error) {
	return count(ctx, dir, q, by, most, func(ctx context.Context, q Query) *reader {
		return newReader(ctx, dir, q, blocksOf)
	})
}

// Count is as the function Count, but one at a time: others wait for it.
func (w *Writer) Count(ctx context.Context, q Query, by string, most int) (Counts, error) {
	select {
	case w.counting <- struct{}{}:
		defer func() { <-w.counting }()
	case <-ctx.Done():
		return Counts{}, ctx.Err()
	}
	return count(ctx, w.cfg.Dir, q, by, most, w.reader)
}

func count(ctx context.Context, dir string, q Query, by string, most int,
	read func(context.Context, Query) *reader) (Counts, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q.Pause = func() error { runtime.Gosched(); return nil }
	all, err := logDir(dir).Files()
	if err != nil {
		return Counts{}, err
	}
	m := q.matcher()
	files := m.within(all)
	counters := make([]*counter, max(1, min(runtime.GOMAXPROCS(0), len(files))))
	var next atomic.Int64
	var wait sync.WaitGroup
	for i := range counters {
		c := newCounter(read(ctx, q), q, by)
		counters[i] = c
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(files); i = int(next.Add(1)) - 1 {
				end := time.Time{}
				if i+1 < len(files) {
					end = files[i+1].Begun
				}
				if err := c.file(files[i], end); err != nil {
					cancel(err)
				}
			}
		})
	}
	wait.Wait()
	sum := counters[0]
	for _, c := range counters[1:] {
		sum.add(c)
	}
	return sum.counts(most), context.Cause(ctx)
}

// counter counts the records of some files. It is for one goroutine.
type counter struct {
	*reader
	asked   Query
	by      string
	keys    []string // of the fields that are looked for: of the property, of its class, of conditions
	values  [][]byte // as JSON
	groups  map[string]*Group
	records int64
	others  int64
	left    int
	pruned  bool
	looked  int64
	name    []byte // of the group
	text    []byte // of the reply
}

// keysBefore is how many keys of a counter come before those of its conditions.
const keysBefore = 2

func newCounter(r *reader, q Query, by string) *counter {
	c := &counter{reader: r, asked: q, by: by, groups: make(map[string]*Group),
		keys: []string{properties[by], ""}}
	if by == "reply" {
		c.keys[1] = properties["class"]
	}
	for _, x := range c.match.asked {
		c.keys = append(c.keys, x.key)
	}
	c.keys = append(c.keys, "event_time")
	c.values = make([][]byte, len(c.keys))
	return c
}

// file counts the records of a file. All of them are before a time; zero: that is not known.
func (c *counter) file(f linelog.File, end time.Time) error {
	q := &c.match.Query
	q.Since, q.Until = c.asked.Since, c.asked.Until
	if f.Begun.After(q.Since.Add(clockSlack)) {
		q.Since = time.Time{}
	}
	if !end.IsZero() && end.Before(q.Until.Add(-clockSlack)) {
		q.Until = time.Time{}
	}
	c.keys[len(c.keys)-1] = ""
	if !q.Since.IsZero() || !q.Until.IsZero() {
		c.keys[len(c.keys)-1] = "event_time"
	}
	n, err := c.lines(f, c.line)
	c.looked += n
	return err
}

// line counts a line if it is a record that fits.
func (c *counter) line(line []byte, at Position) error {
	if !c.match.sound(line, at) || c.match.message == 0 && !c.match.typed(line) {
		return nil
	}
	whole := scan(line, c.keys, c.values)
	fits, sure := false, false
	if whole && c.match.message == 0 && len(c.match.Tag) == 0 {
		fits, sure = c.fits()
	}
	if !sure {
		fits = c.match.means(line, at)
	}
	if !fits {
		return nil
	}
	if !whole { // another program has written it
		other := jsontext.Value(bytes.Clone(line))
		_ = other.Compact()
		scan(other, c.keys, c.values)
	}
	g, n := c.group(), countOf(line)
	g.Count += n
	c.records += n
	return nil
}

// fits reports whether the conditions hold for the values of a line, and whether that is sure.
func (c *counter) fits() (fits, sure bool) {
	for i, x := range c.match.asked {
		text, plain := plainText(c.values[keysBefore+i])
		if !plain {
			return false, false
		}
		if !x.fits(&c.match.Query, text) {
			return false, true
		}
	}
	if c.keys[len(c.keys)-1] == "" {
		return true, true
	}
	text, _ := plainText(c.values[len(c.values)-1])
	t, err := time.Parse(time.RFC3339Nano, text)
	return c.match.inTime(t), err == nil
}

// plainText returns the text of a JSON string without escapes, and false if it has others than ASCII characters.
func plainText(quoted []byte) (string, bool) {
	text := bytes.Trim(quoted, `"`)
	for _, c := range text {
		if !plain[c] {
			return "", false
		}
	}
	return string(text), true
}

// countOf returns how many refusals, or lost records, a line stands for.
func countOf(line []byte) int64 {
	if !bytes.HasPrefix(line, []byte(`{"type":"Rejection"`)) && !bytes.HasPrefix(line, []byte(`{"type":"Lost"`)) {
		return 1
	}
	var value [1][]byte
	scan(line, []string{"count"}, value[:])
	n, _ := strconv.ParseInt(string(value[0]), 10, 64)
	return max(n, 1)
}

// group returns that of the values.
func (c *counter) group() *Group {
	value := c.values[0]
	switch c.by {
	case "reply":
		return c.replied(value)
	case "domain": // the tenant stands before it
		value = value[bytes.LastIndexByte(value, '@')+1:]
	}
	c.name = append(c.name[:0], bytes.Trim(value, `"`)...)
	g := c.groups[string(c.name)]
	if g == nil {
		text, _ := jsontext.AppendUnquote(nil, slices.Concat([]byte{'"'}, c.name, []byte{'"'}))
		g = c.begin(Group{Name: string(text)})
	}
	return g
}

// replied returns the group of a response. Its reply is the first by letter, whatever the order of the files.
func (c *counter) replied(response []byte) *Group {
	var v [3][]byte
	scan(response, []string{"code", "enhanced_code", "content"}, v[:])
	c.text, _ = jsontext.AppendUnquote(c.text[:0], v[2])
	r := reply.Reply{Text: string(c.text[:min(len(c.text), mostText)])}
	r.Code, _ = strconv.Atoi(string(v[0]))
	var e [3][]byte
	scan(v[1], []string{"class", "subject", "detail"}, e[:])
	for i := range e {
		n, _ := strconv.ParseUint(string(e[i]), 10, 16)
		r.Enhanced[i] = uint16(n)
	}
	class := bytes.Trim(c.values[1], `"`)
	c.name = bounce.AppendPattern(append(append(c.name[:0], class...), 0), &r)
	g := c.groups[string(c.name)]
	if g == nil {
		g = c.begin(Group{Name: string(class), Reply: r})
	} else if before(&r, &g.Reply) {
		g.Reply = r
	}
	return g
}

func before(a, b *reply.Reply) bool { return cmp.Or(a.Code-b.Code, cmp.Compare(a.Text, b.Text)) < 0 }

// begin adds a group under c.name.
func (c *counter) begin(g Group) *Group {
	if len(c.groups) >= mostGroups {
		c.prune()
	}
	c.groups[string(c.name)] = &g
	return &g
}

// prune drops the smaller half of the groups: their records are others.
func (c *counter) prune() {
	names := slices.SortedFunc(maps.Keys(c.groups), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.groups[a].Count, c.groups[b].Count), cmp.Compare(a, b))
	})
	for _, name := range names[:len(names)/2] {
		c.others += c.groups[name].Count
		delete(c.groups, name)
	}
	c.left += len(names) / 2
	c.pruned = true
}

// add adds what another has counted.
func (c *counter) add(o *counter) {
	c.records, c.others, c.left, c.looked = c.records+o.records, c.others+o.others, c.left+o.left, c.looked+o.looked
	c.pruned = c.pruned || o.pruned
	c.Damage = append(c.Damage, o.Damage...)
	c.match.damage(o.match.damaged, o.match.first)
	for name, g := range o.groups {
		if of := c.groups[name]; of == nil {
			c.groups[name] = g
		} else {
			of.Count += g.Count
			if before(&g.Reply, &of.Reply) {
				of.Reply = g.Reply
			}
		}
	}
}

// counts returns the largest groups.
func (c *counter) counts(most int) Counts {
	out := Counts{Records: c.records, Others: c.others, Left: c.left, Exact: !c.pruned, Looked: c.looked,
		Damage: c.damaged()}
	for _, g := range c.groups {
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Reply.Code, b.Reply.Code), cmp.Compare(a.Reply.Text, b.Reply.Text))
	})
	for _, g := range out.Groups[min(most, len(out.Groups)):] {
		out.Others += g.Count
		out.Left++
	}
	out.Groups = out.Groups[:min(most, len(out.Groups))]
	return out
}

// scan finds the values of keys, as they stand in a line of JSON; nil: it has none. Objects within it don't count. It
// reports whether the line is one object without white space, as far as it has looked: to the last of the keys.
func scan(line []byte, keys []string, values [][]byte) bool {
	clear(values)
	left := len(keys)
	for _, k := range keys {
		if k == "" {
			left--
		}
	}
	if len(line) < 2 || line[0] != '{' {
		return false
	}
	for rest := line[1:]; left > 0; {
		n := stringLen(rest)
		if n == 0 || n+1 >= len(rest) || rest[n] != ':' {
			return false
		}
		key, value := rest[1:n-1], rest[n+1:]
		if n = valueLen(value); n == 0 || n >= len(value) {
			return false
		}
		for i, k := range keys {
			if k != "" && string(key) == k {
				values[i] = value[:n]
				left--
			}
		}
		switch rest = value[n+1:]; value[n] {
		case ',':
		case '}':
			return len(rest) == 0
		default:
			return false
		}
	}
	return true
}

// stringLen is the length of the JSON string that b begins with, with its quotes; 0: it begins with none.
func stringLen(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return 0
	}
	for i := 1; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return 0
		}
		i += n
		escapes := i
		for b[escapes-1] == '\\' {
			escapes--
		}
		if (i-escapes)%2 == 0 {
			return i + 1
		}
	}
}

// valueLen is the length of the JSON value that b begins with; 0: it begins with none.
func valueLen(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := stringLen(b[i:])
			if n == 0 {
				return 0
			}
			if i += n - 1; depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // behind a number
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return 0
}
