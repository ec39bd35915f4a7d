package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"example.org/mta/operator/audit"
)

// APIKeys is what the server asks of the keys with which tenants submit by HTTP. Errors are of type *Error where
// the operator can do something about them.
type APIKeys interface {
	APIKeys(context.Context) (APIKeyList, error)
	AddAPIKey(context.Context, AddAPIKey) (NewAPIKey, error)
	RotateAPIKey(context.Context, RotateAPIKey) (NewAPIKey, error)
	RemoveAPIKeys(context.Context, RemoveAPIKeys) (RemovedAPIKeys, error)
}

// APIKey is a key without its secret.
type APIKey struct {
	ID      string    `json:"id"`               // the first 12 hexadecimal digits of the SHA-256 of the secret
	Tenant  string    `json:"tenant"`           // whose requests have it
	Name    string    `json:"name"`             // unique among the tenant's keys that are not replaced
	Scopes  []string  `json:"scopes"`           // what it allows: send, read, cancel, events, suppress
	From    []string  `json:"from"`             // the networks where it may be used; empty: anywhere
	Created time.Time `json:"created"`          // to the second
	Expires time.Time `json:"expires,omitzero"` // when it ends; absent: never
	// when a newer key took its name; absent: it is the current one
	Replaced time.Time `json:"replaced,omitzero"`
	LastUsed time.Time `json:"last_used,omitzero"` // to a minute or two; absent: never
	// valid; replaced, and valid until it expires; expired
	State string `json:"state" words:"valid,replaced,expired"`
}

// APIKeyList is keys in the order of their file.
type APIKeyList struct {
	Keys []APIKey `json:"keys"` // in the order of their file
}

// AddAPIKey asks for a key.
type AddAPIKey struct {
	Intent
	Tenant string `json:"tenant" flag:"tenant" help:"the key's <tenant>"`                      // a tenant of the configuration
	Name   string `json:"name" flag:"name" help:"a <name> for the key, unique for the tenant"` // unique for the tenant
	// what it allows: send, read, cancel, events, suppress; absent: all of them
	Scopes []string `json:"scopes,omitempty" flag:"scope" help:"the <scopes>: send, read, cancel, events, suppress (default: all)"`
	// the networks where it may be used; absent: anywhere
	From []string `json:"from,omitempty" flag:"from" help:"the <networks> where the key may be used (default: anywhere)"`
	// how long it is valid; 0: for ever
	Expires Age `json:"expires,omitempty" flag:"expires" help:"the time that the key is valid, such as 90d (<age>; default: forever)"`
}

// RotateAPIKey asks for a key in the place of another.
type RotateAPIKey struct {
	Intent
	// needed where several have a key of the name
	Tenant  string `json:"tenant,omitempty" flag:"tenant" help:"the key's <tenant>, if several have a key of this name"`
	Name    string `json:"name"`              // of the key, or its id
	Overlap *Age   `json:"overlap,omitempty"` // how long both are valid; nil: a day
	// how long the new one is valid; 0: as long as the old one was made for
	Expires Age `json:"expires,omitempty" flag:"expires" help:"the time that the new key is valid (<age>; default: as long as the old one)"`
}

// RemoveAPIKeys names keys.
type RemoveAPIKeys struct {
	Intent
	// needed where several have a key of a name
	Tenant string   `json:"tenant,omitempty" flag:"tenant" help:"the keys' <tenant>, if several have a key of this name"`
	Names  []string `json:"names"` // names or ids
}

// RemovedAPIKeys is the keys that were removed.
type RemovedAPIKeys struct {
	Effect
	APIKeyList
}

// NewAPIKey is a key with its secret, which is in no other answer, in no file and in no log.
type NewAPIKey struct {
	Effect
	Key   string `json:"key"` // the key with its secret, which is in no other answer; "": it was a dry run
	Added APIKey `json:"added"`
	// Old is the key that a rotation replaced, as it is now. Nil: none, or it is gone.
	Old *APIKey `json:"old,omitempty"`
}

// Check refuses the removal of nothing.
func (o *RemoveAPIKeys) Check() error { return someNamed("names", "key", o.Names) }

// Users is what the server asks of those who may log in.
type Users interface {
	ChangeUsers(context.Context, UserChange) (Effect, error)        // those of the listeners
	ChangeConsoleUsers(context.Context, UserChange) (Effect, error) // those of the console
}

// UserChange adds users, gives them another password, or removes them.
type UserChange struct {
	Intent
	Action string   `json:"action" words:"add,password,remove"` // what is done
	Names  []string `json:"names"`                              // whose users it is about
	Hash   string   `json:"hash,omitempty"`                     // of the password, as the users file has it; absent: none
	// of a new user
	Tenant string `json:"tenant,omitempty" flag:"tenant" help:"the user's <tenant>"`
	// of a new user; absent: all that the tenant's allow
	Senders []string `json:"senders,omitempty" flag:"senders" help:"the <addresses> and domains that the user may send as"`
	// of a new user; absent: none
	Certificates []string `json:"certificates,omitempty" flag:"certificate" help:"client <certificates> that log the user in"`
	// of a new user of the console: viewer, operator or admin
	Role string `json:"role,omitempty"`
}

// Check refuses what can't be one change.
func (o *UserChange) Check() error {
	if actions := []string{"add", "password", "remove"}; !slices.Contains(actions, o.Action) {
		return Invalid("", "action: want %s, not %q", join(actions), o.Action)
	}
	return someNamed("names", "user", o.Names)
}

// FileActions are the commands that change a file without the relay, which may not be allowed to write it. While a
// relay runs, they have it put them on record: it alone writes the audit log.
var FileActions = []string{
	"key add", "key rotate", "key remove", "user add", "user password", "user remove",
	"console user add", "console user password", "console user remove", "dkim keygen",
}

// FileChange is a change that such a command is about to make.
type FileChange struct {
	// the command
	Action string `json:"action" words:"key add,key rotate,key remove,user add,user password,user remove,console user add,console user password,console user remove,dkim keygen"`
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
	// fileChangePatience is how long a command has from the first of the two lines to the second. It takes
	// milliseconds; then it is taken for killed.
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
	line := audit.Line{Actor: ActorOf(r.Context()), Action: c.Action, Subject: c.FileSubject.String(), Reason: reason}
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
		s.config.Events.Info("operator acts", "action", c.line.Action, "subject", c.line.Subject, "count", e.Count,
			"by", c.line.Name(), "reason", c.line.Reason)
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
