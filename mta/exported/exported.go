// Package exported is the format in which queued messages go from one relay to another: a tar archive with two files
// for each message, ID.json and then ID.eml, and export.json at its end. Files keys-N.json with clients' idempotency
// keys may precede the messages. It writes and reads that, one message at a time; it
// knows neither a queue nor a configuration.
package exported

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// Version is that of the format, and the only one that this program reads.
const Version = 1

// Message is ID.json.
type Message struct {
	Version int    `json:"version"`
	Node    string `json:"node"` // the nodeid of the relay that it leaves
	ID      string `json:"id"`   // there

	Sender   string    `json:"sender"`
	Size     int64     `json:"size"`     // octets of ID.eml
	SHA256   string    `json:"sha256"`   // of ID.eml, in hexadecimal
	Accepted time.Time `json:"accepted"` // by the relay
	Release  time.Time `json:"release,omitzero"`
	Spread   int       `json:"spread,omitempty"` // seconds
	Expires  time.Time `json:"expires,omitzero"`

	Body        string `json:"body,omitempty"` // 8BITMIME, BINARYMIME; "": 7BIT
	SMTPUTF8    bool   `json:"smtputf8,omitempty"`
	RET         string `json:"ret,omitempty"`
	EnvID       Text   `json:"envid,omitempty"`
	RequireTLS  bool   `json:"requiretls,omitempty"`
	TLSOptional bool   `json:"tls_optional,omitempty"`

	Tenant   Text            `json:"tenant,omitempty"`
	Campaign Text            `json:"campaign,omitempty"`
	Pool     Text            `json:"pool,omitempty"`
	User     Text            `json:"user,omitempty"`
	APIKey   Text            `json:"key,omitempty"`
	Tier     int             `json:"tier"`
	Tags     []Text          `json:"tags,omitempty"`
	Marks    []Text          `json:"marks,omitempty"`
	Meta     json.RawMessage `json:"meta,omitempty"`
	Headers  json.RawMessage `json:"headers,omitempty"`
	TraceID  string          `json:"trace_id,omitempty"`

	Origin

	Total      int         `json:"total"` // recipients that it was accepted for
	Recipients []Recipient `json:"recipients"`
}

// Origin is the session in which a message came in.
type Origin struct {
	Peer     string `json:"peer,omitempty"` // ip:port
	HeloName Text   `json:"helo,omitempty"`
	Session  Text   `json:"session,omitempty"`
	Protocol Text   `json:"protocol,omitempty"`
}

// Recipient is one that leaves with its message.
type Recipient struct {
	Index    int       `json:"index"` // among those that the message was accepted for
	Address  string    `json:"address"`
	Notify   string    `json:"notify,omitempty"`
	ORcpt    Text      `json:"orcpt,omitempty"`
	Attempts int       `json:"attempts"`
	Next     time.Time `json:"next,omitzero"` // attempt; zero: at once
	Held     bool      `json:"held,omitempty"`
	Warned   bool      `json:"warned,omitempty"` // its sender was notified of the delay
	Site     string    `json:"site,omitempty"`   // that it waits for, or was tried at last
	Last     *Attempt  `json:"last,omitempty"`
}

// Attempt is the last one.
type Attempt struct {
	Code     int    `json:"code,omitempty"`
	Enhanced string `json:"enhanced,omitempty"`
	Text     Text   `json:"text,omitempty"`
	Command  string `json:"command,omitempty"`
	Local    bool   `json:"local,omitempty"` // the relay's own
	Via      Text   `json:"via,omitempty"`   // the source, and what else names the way
	Pool     Text   `json:"pool,omitempty"`  // that an operator has chosen by a reroute
	Route    Text   `json:"route,omitempty"` // likewise
}

// Summary is export.json, the last file of an archive.
type Summary struct {
	Version    int       `json:"version"`
	Node       string    `json:"node"`
	Hostname   string    `json:"hostname,omitempty"`
	Program    string    `json:"program,omitempty"` // the version of mta
	At         time.Time `json:"at"`
	Messages   int       `json:"messages"`
	Recipients int       `json:"recipients"`
	Unheld     int       `json:"unheld"`      // of Recipients: this relay delivers them, too
	InDelivery int       `json:"in_delivery"` // recipients that were selected and are left out: in delivery
	Ending     int       `json:"ending"`      // likewise: given up, their report is being written
	Unreadable int       `json:"unreadable"`  // likewise: damaged
	Keys       int       `json:"-"`           // that a Reader has come by: earlier versions read no such count
}

// Text is a string that clients and hosts have chosen: in JSON it is a string, or {"base64": ...} where it is not
// UTF-8.
type Text string

type octets struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(t)) {
		return json.Marshal(octets{[]byte(t)})
	}
	return json.Marshal(string(t))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var o octets
		if err := json.Unmarshal(b, &o); err != nil {
			return err
		}
		*t = Text(o.Base64)
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// Error is what is wrong with an archive.
type Error struct {
	Place   string // the file in it
	Problem string
	Remedy  string
}

func (e *Error) Error() string { return e.Place + ": " + e.Problem }

const again = "export again: the archive is damaged or was cut off"

func wrong(place, remedy, format string, args ...any) error {
	return &Error{place, fmt.Sprintf(format, args...), remedy}
}
