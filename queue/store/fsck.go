package store

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/format"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/vfs"
)

// Report is what Fsck found. Sizes are in octets.
type Report struct {
	Dir        string          `json:"dir"`
	InUse      bool            `json:"in_use"` // a relay has the directory: the report may show half of a change
	Segments   []SegmentReport `json:"segments"`
	Records    map[string]int  `json:"records"`    // by kind
	Messages   int             `json:"messages"`   // with living recipients
	Recipients map[string]int  `json:"recipients"` // living, by the state that they start in
	Bytes      int64           `json:"bytes"`      // of segments and large contents
	LiveBytes  int64           `json:"live_bytes"`
	Large      int             `json:"large"` // contents in files of their own that messages name
	LargeBytes int64           `json:"large_bytes"`
	Orphans    []string        `json:"orphans,omitempty"`   // files that nothing names; a start removes them
	SetAside   []string        `json:"set_aside,omitempty"` // damaged segments that are not needed any more
	Keys       int             `json:"idempotency_keys"`    // different ones, those whose time is over included
	Oldest     envelope.ID     `json:"-"`
	OldestID   string          `json:"oldest,omitempty"` // the message that has been there longest
	Damage     []DamageReport  `json:"damage,omitempty"`
	Notes      []string        `json:"notes,omitempty"` // what a crash left, and a start puts right
}

// SegmentReport is one file of the journal.
type SegmentReport struct {
	File     string `json:"file"`
	Size     int64  `json:"size"` // of the file
	End      int64  `json:"end"`  // what of it is to be trusted
	Records  int    `json:"records"`
	Messages int    `json:"messages"` // with living recipients
	Live     int64  `json:"live"`     // octets that they take, about
	Index    string `json:"index"`    // good; missing, or of another version of mta; damaged
	Damaged  int    `json:"damaged"`  // stretches that can't be read
}

// DamageReport is one place that can't be read.
type DamageReport struct {
	File    string `json:"file"`
	Offset  int64  `json:"offset"`
	End     int64  `json:"end"`
	Error   string `json:"error"`
	Meaning string `json:"meaning"`
	AtStart string `json:"at_start"`
}

// Fsck reads a queue's directory, every octet of it, and returns what is in it and what is
// damaged. It changes nothing. fs may be nil: the operating system's. visit, if not nil, is
// called for each message with living recipients, oldest first. An error says that the directory
// could not be looked at; damage in it is in the report.
func Fsck(root string, fs vfs.FS, visit func(FsckMessage)) (*Report, error) {
	if fs == nil {
		fs = vfs.OS()
	}
	c := &checker{visit: visit, r: &Report{Dir: root, Records: map[string]int{}, Recipients: map[string]int{}}}
	c.dir = NewDir(root, fs, nil)
	defer c.dir.Files.Close()
	if err := c.run(); err != nil {
		return nil, fmt.Errorf("reading queue %s: %w", root, err)
	}
	return c.r, nil
}

// FsckMessage is a message with living recipients as Fsck found it.
type FsckMessage struct {
	ID         envelope.ID
	File       string
	Offset     int64
	Message    *envelope.Message      // nil when it can't be read
	Recipients map[int]schedule.State // the living, by index
}

// checker is one run of Fsck.
type checker struct {
	dir    *Dir
	visit  func(FsckMessage)
	r      *Report
	list   []Found
	roll   Roll
	bodies map[uint64]int64
	named  map[uint64]bool
}

func (c *checker) run() error {
	if err := c.look(); err != nil {
		return err
	}
	c.readSegments()
	runs := make([]*Run, len(c.list))
	for i := range c.list {
		runs[i] = c.list[i].Run
	}
	rep := NewReplay(runs, func(int, int, bool) {})
	err := rep.All(func(h *History) error {
		c.message(h)
		return nil
	})
	if err != nil {
		return err
	}
	c.large()
	c.r.Keys, err = countKeys(runs)
	return err
}

// look lists the directory.
func (c *checker) look() error {
	list, others, err := c.dir.files()
	if err != nil {
		return err
	}
	c.list = list
	for i := range list {
		c.r.Bytes += list[i].Size
	}
	var strays []vfs.Info
	for _, f := range others {
		id, suffix, ok := ParseSegmentName(f.Name)
		switch {
		case f.Name == LockName:
			c.r.InUse = c.locked()
		case ok && suffix == IndexSuffix:
			if !slices.ContainsFunc(list, func(s Found) bool { return s.ID == id }) {
				strays = append(strays, f)
			}
		case f.Name == format.FileName:
		case ok && suffix == SpareSuffix:
			c.r.Notes = append(c.r.Notes, f.Name+" is an unused segment; a start removes it")
		case strings.HasSuffix(f.Name, tmpSuffix):
			c.r.Notes = append(c.r.Notes, f.Name+" was being written; a start removes it")
		default:
			c.r.Notes = append(c.r.Notes, f.Name+" is not the queue's")
		}
	}
	c.roll = c.dir.NewRoll(list, strays)
	c.named = map[uint64]bool{}
	if c.bodies, err = c.dir.ListLarge(); err != nil && !IsNotExist(err) {
		return err
	}
	aside, err := c.dir.FS.List(filepath.Join(c.r.Dir, DamagedDir))
	if err != nil && !IsNotExist(err) {
		return err
	}
	for _, f := range aside {
		c.r.SetAside = append(c.r.SetAside, filepath.Join(DamagedDir, f.Name))
	}
	return nil
}

// locked asks for the lock and gives it back at once.
func (c *checker) locked() bool {
	l, err := c.dir.FS.Lock(c.dir.Path(LockName))
	if err != nil {
		return errors.Is(err, ErrLocked)
	}
	l.Close()
	return false
}

// readSegments reads every record, and compares the indexes with what is in the segments.
func (c *checker) readSegments() {
	c.dir.FindEnds(c.list, 0)
	kept, unreadable := c.list[:0], []SegmentID(nil)
	for i := range c.list {
		f := c.list[i]
		name := SegmentBase(f.ID) + SegmentSuffix
		s := SegmentReport{File: name, Size: f.Size, Index: "good"}
		r, err := OpenIndex(c.dir.FS, c.dir.IndexPath(f.ID), f.ID)
		if err == nil {
			f.end = r.End
			r.Close()
		} else if s.Index = "damaged"; IsNotExist(err) || errors.Is(err, errOtherIndex) {
			s.Index = "missing"
		}
		ix, res, err := c.dir.scan(&f)
		if odd := (*FormatError)(nil); errors.As(err, &odd) {
			c.damage(name, Damage{Offset: odd.off, End: f.Size, Err: err},
				"nothing: another version of mta has written it", "this program does not start; start that version")
			continue
		}
		if err != nil {
			c.damage(name, Damage{End: f.Size, Err: err}, "nothing in this segment can be read",
				"it is left where it is and not served")
			unreadable = append(unreadable, f.ID)
			continue
		}
		c.segment(&f, &s, ix, res)
		if s.Records > 0 || s.Damaged > 0 {
			f.Run = ix.Run()
			kept = append(kept, f)
			c.r.Segments = append(c.r.Segments, s)
		} else {
			c.r.Notes = append(c.r.Notes, name+" was made and never used; a start removes it")
		}
	}
	c.list = kept
	for _, id := range c.roll.Missing(kept, unreadable) {
		c.damage(SegmentBase(id)+SegmentSuffix, Damage{Err: ErrMissing},
			"what is in this segment is lost unless you put it back",
			"this program does not start; to go on without that mail, make an empty file of this name")
	}
}

func (c *checker) segment(f *Found, s *SegmentReport, ix *Index, res ScanResult) {
	s.End, s.Damaged = res.End, len(ix.Damaged)
	for kind, n := range ix.Records {
		if n > 0 {
			c.r.Records[KindNames[Kind(kind)]] += n
			s.Records += n
		}
	}
	if res.Torn > 0 {
		c.r.Notes = append(c.r.Notes,
			fmt.Sprintf("%s: %d octets from offset %d were written and never synced: nothing in them was promised; a "+
				"start leaves them out", s.File, res.Torn, res.End))
	}
	for _, d := range ix.Damaged {
		c.damage(s.File, d,
			"a message in this stretch can't be delivered; outcomes there are lost, and those messages are delivered "+
				"again; idempotency keys there are lost, and a request that is sent again with one is taken again",
			"a message whose envelope is sound is reported to its sender, one whose envelope is not is named and "+
				"kept; all else in the segment is served; the file is set aside, not deleted, when it is no longer "+
				"needed")
	}
	if s.Index == "damaged" {
		c.r.Damage = append(c.r.Damage, DamageReport{File: SegmentBase(f.ID) + IndexSuffix, Error: errIndex.Error(),
			Meaning: "nothing is lost", AtStart: "it is made again from the segment"})
	}
}

func (c *checker) damage(file string, d Damage, meaning, atStart string) {
	text := "octets are not what was written"
	if d.Err != nil {
		text = d.Err.Error()
	}
	c.r.Damage = append(c.r.Damage,
		DamageReport{File: file, Offset: d.Offset, End: d.End, Error: text, Meaning: meaning, AtStart: atStart})
}

// message takes a message with living recipients into the report.
func (c *checker) message(h *History) {
	s := &c.r.Segments[h.Run]
	s.Messages++
	s.Live += schedule.Octets(h.Size)
	c.r.LiveBytes += schedule.Octets(h.Size)
	c.r.Messages++
	if c.r.OldestID == "" {
		c.r.Oldest = envelope.ID(h.ID)
		c.r.OldestID = c.r.Oldest.String()
	}
	if h.Large != 0 {
		c.named[h.Large] = true
		c.checkLarge(h)
	}
	m := FsckMessage{ID: envelope.ID(h.ID), File: s.File, Offset: h.Off, Recipients: map[int]schedule.State{}}
	for i := range h.Rcpts {
		rc := &h.Rcpts[i]
		if !rc.Living {
			continue
		}
		state := stateAtStart(rc)
		c.r.Recipients[state.String()]++
		m.Recipients[i] = state
	}
	if c.visit != nil {
		// damage there is reported already
		m.Message, _ = c.dir.ReadEnvelope(Place{ID: c.list[h.Run].ID, Off: h.Off, Size: schedule.Octets(h.Size)})
		c.visit(m)
	}
}

// checkLarge reads a content that has its own file.
func (c *checker) checkLarge(h *History) {
	if _, ok := c.bodies[h.Large]; !ok {
		return // large reports it
	}
	_, body, err := c.dir.ReadMessage(Place{ID: c.list[h.Run].ID, Off: h.Off, Size: schedule.Octets(h.Size)})
	if err != nil {
		return // reported already
	}
	r, err := c.dir.OpenLarge(body.Prelude)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		r.Close()
	}
	if err != nil {
		c.damage(filepath.Join(LargeDir, largeName(h.Large)), Damage{End: body.BodyLen, Err: err},
			fmt.Sprintf("the content of message %s can't be read whole", envelope.ID(h.ID)),
			"the message is served; each attempt fails when its content does not add up")
	}
}

// stateAtStart is the state that a recipient has after Open, whatever its time is.
func stateAtStart(rc *RecipientHistory) schedule.State {
	switch {
	case rc.Marks&MarkBounce != 0:
		return schedule.Ending
	case rc.Marks&MarkHeld != 0:
		return schedule.Held
	case rc.Attempts > 0:
		return schedule.Deferred
	}
	return schedule.Due
}

// large compares the files of large contents with what the messages name.
func (c *checker) large() {
	for n, size := range c.bodies {
		c.r.Bytes += size
		if !c.named[n] {
			c.r.Orphans = append(c.r.Orphans, filepath.Join(LargeDir, largeName(n)))
			continue
		}
		c.r.Large++
		c.r.LargeBytes += size
		c.r.LiveBytes += size
	}
	slices.Sort(c.r.Orphans)
	for n := range c.named {
		if _, ok := c.bodies[n]; !ok {
			c.damage(filepath.Join(LargeDir, largeName(n)), Damage{Err: errors.New("file is missing")},
				"the content of a message is lost", "the message is kept, unreadable, until an operator removes it")
		}
	}
}

// Damaged reports whether something was lost.
func (r *Report) Damaged() bool { return len(r.Damage) > 0 }

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "queue %s\n", r.Dir)
	if r.InUse {
		fmt.Fprintln(t, "A RELAY IS USING IT: this report may be inconsistent")
	}
	fmt.Fprintf(t, "\nmessages\t%d\n", r.Messages)
	for _, s := range []schedule.State{schedule.Due, schedule.Deferred, schedule.Held, schedule.Ending} {
		fmt.Fprintf(t, "recipients %s\t%d\n", s, r.Recipients[s.String()])
	}
	fmt.Fprintf(t, "oldest message\t%s\n", cmp.Or(r.OldestID, "-"))
	fmt.Fprintf(t, "idempotency keys\t%d\n", r.Keys)
	fmt.Fprintf(t, "octets\t%d, living %d\n", r.Bytes, r.LiveBytes)
	fmt.Fprintf(t, "large contents\t%d, %d octets\n", r.Large, r.LargeBytes)
	for k := KindOpened; k <= KindKeyed; k++ {
		fmt.Fprintf(t, "records %s\t%d\n", KindNames[k], r.Records[KindNames[k]])
	}
	if len(r.Segments) > 0 {
		fmt.Fprintln(t, "\nsegment\tsize\tend\trecords\tmessages\tliving\tindex\tdamaged")
		for _, s := range r.Segments {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%d\n", s.File, s.Size, s.End, s.Records, s.Messages, s.Live,
				s.Index, s.Damaged)
		}
	}
	section(t, "orphans, that a start removes", r.Orphans)
	section(t, "set aside, to be deleted by you", r.SetAside)
	section(t, "notes", r.Notes)
	if len(r.Damage) == 0 {
		fmt.Fprintln(t, "\nno damage")
	}
	for _, d := range r.Damage {
		fmt.Fprintf(t, "\nDAMAGE %s, offset %d to %d: %s\n  means: %s\n  at start: %s\n", d.File, d.Offset, d.End,
			d.Error, d.Meaning, d.AtStart)
	}
	return t.Flush()
}

func section(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, l := range lines {
		fmt.Fprintf(w, "  %s\n", l)
	}
}
