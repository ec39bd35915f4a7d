package adopting

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/cluster/moving"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/events"
	"example.org/mta/queue"
	"example.org/mta/queue/store"
)

// named is how many messages, and damaged places, are named.
const named = 20

// damage names what of a queue can't be read.
func damage(r *store.Report) (all []string) {
	for _, d := range r.Damage {
		all = append(all, fmt.Sprintf("%s from octet %d on: %s", filepath.Join(r.Dir, d.File), d.Offset, d.Error))
	}
	for _, name := range r.SetAside {
		all = append(all, filepath.Join(r.Dir, name)+": a damaged file that was set aside, to be moved away when its "+
			"mail was seen to")
	}
	return few(all)
}

// few returns the first of them, and how many more there are.
func few(all []string) []string {
	if more := len(all) - named; more > 0 {
		all = append(all[:named], fmt.Sprintf("and %d more", more))
	}
	return all
}

// damage names what the queue has found damaged when it was opened. The places are looked for only then, since that
// reads every octet.
func (x *adoption) damage() []string {
	s := x.queue.Stats()
	if s.DamagedFiles == 0 && s.DamagedRecords == 0 {
		return nil
	}
	report, err := store.Fsck(datadir.Queue(x.cfg), x.held(), nil)
	if err == nil {
		if all := damage(report); len(all) > 0 {
			return all
		}
	}
	return []string{fmt.Sprintf("%d files and %d places of the queue, which are damaged: the log of this relay names "+
		"them", s.DamagedFiles, s.DamagedRecords)}
}

// streams returns which events can't be sent: those of streams that this relay does not have, and all if the log is not
// there or this relay keeps none. It reports whether the log is to be opened: that would make an empty one.
func (x *adoption) streams() (lacks []string, readable bool, err error) {
	all, err := events.ReadKept(filepath.Join(x.small, streamsFile), x.of.cfg.Now, x.of.cfg.Log)
	if err != nil {
		return nil, false, err
	}
	// An adoption before has removed those that this relay did not have.
	maps.DeleteFunc(all, func(_ string, k events.Kept) bool {
		return !k.Removed.IsZero() && (x.mark.Began.IsZero() || k.Removed.Before(x.mark.Began))
	})
	readable = x.cfg.Accounting.Enabled
	why := "accounting is disabled at this relay"
	if readable {
		why = "the log of the dead node is not at " + x.cfg.Accounting.Path + ": mount it there, or link to it"
		log, err := os.ReadDir(x.cfg.Accounting.Path)
		readable = len(all) == 0 || err == nil && slices.ContainsFunc(log, func(e fs.DirEntry) bool {
			return e.Type().IsRegular() && strings.Contains(e.Name(), ".jsonl")
		})
	}
	has := map[string]bool{}
	for _, s := range x.of.cfg.Streams(x.cfg.NodeID) {
		has[s.Name] = readable
	}
	if readable {
		why = "this relay does not have that stream"
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !has[name] {
			lacks = append(lacks, fmt.Sprintf("events of the stream %s: %s", name, why))
		}
	}
	return lacks, readable, nil
}

// rest names the messages that are left, with the reason. Nobody changes the queue any more.
func (x *adoption) rest() (all []string) {
	more := 0
	walk := x.queue.Walk(queue.Filter{}, false, 0)
	for c, _ := walk.Next(); c != nil; c, _ = walk.Next() {
		if len(all) == named {
			more++
			continue
		}
		withheld := false
		for i := range c.Rcpts {
			withheld = withheld || c.Rcpts[i].Action().Leaves()
		}
		id := envelope.ID(c.ID)
		why := "the node that it was sent to has not answered whether it has it"
		if !withheld {
			why = x.why(id)
		}
		all = append(all, fmt.Sprintf("message %s with %d recipients: %s", id, len(c.Rcpts), why))
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("and %d more messages", more))
	}
	return all
}

// why returns why a message is left.
func (x *adoption) why(id envelope.ID) string {
	w, err := x.queue.Export(queue.Selector{IDs: []envelope.ID{id}}, func(*queue.Exported) error { return nil })
	switch {
	case err != nil:
		return err.Error()
	case w.Unreadable > 0:
		return "its envelope is damaged"
	case w.Ending > 0:
		return "only a report about a delivery is outstanding"
	}
	content, err := x.queue.Body(id)
	if err == nil {
		_, err = io.Copy(io.Discard, content)
		content.Close()
	}
	switch {
	case err != nil:
		return fmt.Sprintf("its content can't be read: %v", err)
	case x.mail.isDeclined(id.String()):
		return "the nodes that take mail decline it: the log of this relay has the first reason"
	}
	return "no node takes it"
}

// watched is mail of which it is known whether some of it is being sent.
type watched struct {
	moving.Mail
	frozen func() bool
	now    func() time.Time

	mu       sync.Mutex           // guards what follows
	sent     map[string]time.Time // messages that are with a node, which has not answered; keys under ""
	declined map[string]bool
}

// answered is the time in which a node answers, or is not waited for any more.
const answered = 75 * time.Second

func watch(m moving.Mail, frozen func() bool, now func() time.Time) *watched {
	return &watched{Mail: m, frozen: frozen, now: now, sent: make(map[string]time.Time),
		declined: make(map[string]bool)}
}

// leaving reports whether mail, or keys, are on their way to a node that may yet answer.
func (w *watched) leaving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.sent, func(_ string, at time.Time) bool { return w.now().Sub(at) > answered })
	return len(w.sent) > 0
}

func (w *watched) isDeclined(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.declined[id]
}

func (w *watched) settled(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sent, id)
}

// Keys implements moving.Mail.
func (w *watched) Keys(out io.Writer) error {
	w.mu.Lock()
	w.sent[""] = w.now()
	w.mu.Unlock()
	return w.Mail.Keys(out)
}

// Leave implements moving.Mail.
func (w *watched) Leave(
	ctx context.Context, mark func(string) uint64, each func(moving.Batch, uint64) error,
) (int, error) {
	w.settled("")
	return w.Mail.Leave(ctx, func(id string) uint64 {
		if w.frozen() {
			return moving.Skip
		}
		is := mark(id)
		w.mu.Lock()
		defer w.mu.Unlock()
		if is != 0 && len(w.declined) < 1000 {
			w.declined[id] = true
		}
		return is
	}, func(b moving.Batch, is uint64) error {
		w.mu.Lock()
		for _, p := range b.Parts() {
			w.sent[p.ID] = w.now()
		}
		w.mu.Unlock()
		return each(b, is)
	})
}

// Moved implements moving.Mail.
func (w *watched) Moved(taken []moving.Taken) error {
	err := w.Mail.Moved(taken)
	for _, t := range taken {
		w.settled(t.ID)
	}
	return err
}

// Stay implements moving.Mail.
func (w *watched) Stay(parts []moving.Part) {
	w.Mail.Stay(parts)
	for _, p := range parts {
		w.settled(p.ID)
	}
}
