package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"example.org/mta/operator/audit"
)

// FileActions are the commands that change a file without the relay, which may not be allowed to write it. While a
// relay runs, they have it put them on record: it alone writes the audit log.
var FileActions = []string{
	"key add", "key rotate", "key remove", "user add", "user password", "user remove",
	"console user add", "console user password", "console user remove", "dkim keygen",
}

// FileChange is a change that such a command is about to make.
type FileChange struct {
	Action string `json:"action" words:"key add,key rotate,key remove,user add,user password,user remove,console user add,console user password,console user remove,dkim keygen"` // the command
	FileSubject
}

// FileSubject is what a FileChange is about.
type FileSubject struct {
	File     string   `json:"file"`               // the path of the file
	Tenant   string   `json:"tenant,omitempty"`   // of a key or user
	Names    []string `json:"names,omitempty"`    // of users or keys
	Role     string   `json:"role,omitempty"`     // of a user of the console
	Scopes   []string `json:"scopes,omitempty"`   // of a key
	Expired  bool     `json:"expired,omitempty"`  // all expired keys
	Domain   string   `json:"domain,omitempty"`   // of a DKIM key
	Selector string   `json:"selector,omitempty"` // of a DKIM key
}

// String puts it into the words of the audit log.
func (f FileSubject) String() string {
	body, err := json.Marshal(f)
	if err != nil {
		panic(err) // of strings there is none
	}
	return subjectIn(body)
}

// BegunFileChange is a FileChange that is on record.
type BegunFileChange struct {
	Number int64 `json:"number"` // for its outcome
}

// EndedFileChange is what became of a FileChange.
type EndedFileChange struct {
	Number  int64         `json:"number"`          // that it was begun with
	Outcome audit.Outcome `json:"outcome"`         // how it has ended
	Count   int           `json:"count,omitempty"` // what was changed
	Error   string        `json:"error,omitempty"` // why it was refused or has failed
}

const (
	// fileChangePatience is how long a command has from the first of the two lines to the second. It takes milliseconds;
	// then it is taken for killed.
	fileChangePatience = time.Minute
	// mostFileChanges bounds those that are under way.
	mostFileChanges = 100
)

// fileChanges are those that have begun and not ended.
type fileChanges struct {
	mu    sync.Mutex
	begun map[int64]fileChange
	last  int64
}

type fileChange struct {
	line   audit.Line
	begun  *audit.Begun // nil without an audit log
	expiry *time.Timer
}

// beginFileChange puts it on record that a command begins.
func (s *Server) beginFileChange(r *http.Request, c FileChange) (b BegunFileChange, err error) {
	if !slices.Contains(FileActions, c.Action) {
		return b, Invalid("", "action: want %s, not %q", join(FileActions), c.Action)
	}
	reason, err := readReason(r.Header)
	if err != nil {
		return b, err
	}
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	if len(s.files.begun) >= mostFileChanges {
		return b, Unavailable("try again in a minute", "%d commands change files", mostFileChanges)
	}
	line := audit.Line{Actor: actorOf(r.Context()), Action: c.Action, Subject: c.FileSubject.String(), Reason: reason}
	begun, err := s.beginAction(line)
	if err != nil {
		return b, err
	}
	s.files.last++
	number := s.files.last
	if s.files.begun == nil {
		s.files.begun = make(map[int64]fileChange)
	}
	s.files.begun[number] = fileChange{line, begun, time.AfterFunc(fileChangePatience, func() {
		if c, ok := s.files.take(number); ok && c.begun != nil {
			_ = c.begun.End(audit.Unknown, 0, "the command was killed")
		}
	})}
	return BegunFileChange{number}, nil
}

// endFileChange puts on record how a command has ended.
func (s *Server) endFileChange(_ *http.Request, e EndedFileChange) (Effect, error) {
	if !slices.Contains(audit.Outcomes, e.Outcome) {
		return Effect{}, Invalid("", "outcome: want %s, not %q", join(audit.Outcomes), e.Outcome)
	}
	c, ok := s.files.take(e.Number)
	if !ok {
		return Effect{}, NotFound("a command has a minute", "no command with the number %d is under way", e.Number)
	}
	c.expiry.Stop()
	if c.begun != nil {
		if err := c.begun.End(e.Outcome, e.Count, e.Error); err != nil {
			return Effect{}, noAudit(err)
		}
	}
	if e.Outcome == audit.Done {
		s.config.Events.Info("operator acts", "action", c.line.Action, "subject", c.line.Subject, "count", e.Count, "by", c.line.Name(), "reason", c.line.Reason)
	}
	return Effect{Count: e.Count}, nil
}

// take returns a change, once.
func (f *fileChanges) take(number int64) (fileChange, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.begun[number]
	delete(f.begun, number)
	return c, ok
}

// BeginFileChange puts it on record that a command begins, with the reason of ctx. After an error it must not go on.
func (c *Client) BeginFileChange(ctx context.Context, change FileChange) (BegunFileChange, error) {
	begun, err := opBeginFileChange.call(ctx, c, change)
	if err != nil {
		err = fmt.Errorf("the change can't be put on record: %w", err)
	}
	return begun, err
}

// EndFileChange puts on record how it has ended, within a minute.
func (c *Client) EndFileChange(ctx context.Context, ended EndedFileChange) error {
	_, err := opEndFileChange.call(ctx, c, ended)
	return err
}
