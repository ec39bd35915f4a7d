package client

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"
)

// Message is a request of POST /v1/messages. Mailboxes are "ann@example.com" or "Ann <ann@example.com>". Fields
// that are empty are left out. docs/http.md describes each.
type Message struct {
	From        string            `json:"from,omitempty"`
	Sender      string            `json:"sender,omitempty"` // MAIL FROM, if it is another
	To          []string          `json:"to,omitempty"`
	Cc          []string          `json:"cc,omitempty"`
	Bcc         []string          `json:"bcc,omitempty"`
	ReplyTo     []string          `json:"reply_to,omitempty"`
	Subject     string            `json:"subject,omitempty"`
	Text        string            `json:"text,omitempty"`
	HTML        string            `json:"html,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Attachments []Attachment      `json:"attachments,omitempty"`
	Raw         string            `json:"raw,omitempty"` // a whole message in place of the above

	Recipients []Recipient    `json:"recipients,omitempty"` // each gets a message
	Template   string         `json:"template,omitempty"`
	Data       map[string]any `json:"data,omitempty"`
	Strict     bool           `json:"strict,omitempty"` // a variable that the data lack is an error

	SendAt    time.Time       `json:"send_at,omitzero"`
	Spread    int             `json:"spread,omitempty"` // seconds
	ExpiresAt time.Time       `json:"expires_at,omitzero"`
	Timezone  string          `json:"timezone,omitempty"` // of the recipients
	Pace      string          `json:"pace,omitempty"`     // of the campaign, as 10000/h
	Campaign  string          `json:"campaign,omitempty"`
	Tags      []string        `json:"tags,omitempty"`
	Meta      json.RawMessage `json:"meta,omitempty"` // a JSON object
	Priority  *int            `json:"priority,omitempty"`
	Pool      string          `json:"pool,omitempty"`
	DSN
	DryRun bool `json:"dry_run,omitempty"`

	// IdempotencyKey names the request when the program may be started again before it has an answer.
	// "": Send makes one.
	IdempotencyKey string `json:"-"`
}

// DSN is what the sender wants to hear of the delivery (RFC 3461).
type DSN struct {
	Notify []string `json:"notify,omitempty"` // success, failure, delay, or never
	EnvID  string   `json:"envid,omitempty"`
	Ret    string   `json:"ret,omitempty"` // full or headers
}

// Attachment is a file. One with a ContentID is displayed where the HTML has cid:ContentID.
type Attachment struct {
	Name      string `json:"name,omitempty"`
	Type      string `json:"type,omitempty"`
	ContentID string `json:"content_id,omitempty"`
	Content   []byte `json:"content"`
}

// Recipient gets a separate message.
type Recipient struct {
	To      []string          `json:"to"`
	Data    map[string]any    `json:"data,omitempty"`
	Meta    json.RawMessage   `json:"meta,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	SendAt  time.Time         `json:"send_at,omitzero"`
	// Timezone is in place of the message's.
	Timezone string `json:"timezone,omitempty"`
}

// Envelope is what goes with a message that is sent as it is.
type Envelope struct {
	From        string // MAIL FROM; "<>" is the null sender
	To, Cc, Bcc []string
	SendAt      time.Time
	ExpiresAt   time.Time
	Timezone    string
	Pace        string
	Campaign    string
	Tags        []string
	Meta        json.RawMessage
	Priority    *int
	Pool        string
	DryRun      bool

	IdempotencyKey string // "": SendRaw makes one
}

func (e Envelope) query() url.Values {
	q := url.Values{"from": {e.From}, "to": e.To, "cc": e.Cc, "bcc": e.Bcc, "tags": e.Tags}
	for name, value := range map[string]string{"campaign": e.Campaign, "meta": string(e.Meta), "pool": e.Pool,
		"timezone": e.Timezone, "pace": e.Pace} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, t := range map[string]time.Time{"send_at": e.SendAt, "expires_at": e.ExpiresAt} {
		if !t.IsZero() {
			q.Set(name, t.Format(time.RFC3339))
		}
	}
	if e.Priority != nil {
		q.Set("priority", strconv.Itoa(*e.Priority))
	}
	if e.DryRun {
		q.Set("dry_run", "true")
	}
	return q
}

// Sent is what became of a request.
type Sent struct {
	Messages []SentMessage `json:"messages"`
	// Replayed says that an earlier request with the same key was answered, and this one took nothing.
	Replayed bool `json:"-"`
}

// SentMessage is what became of one message.
type SentMessage struct {
	ID         string          `json:"id,omitempty"`
	Status     string          `json:"status"` // accepted, scheduled, refused, failed, dry_run
	Detail     string          `json:"detail,omitempty"`
	Recipients []SentRecipient `json:"recipients"`
	Content    string          `json:"content,omitempty"` // of a dry run
	Base64     []byte          `json:"content_base64,omitempty"`
}

// SentRecipient is what became of one recipient.
type SentRecipient struct {
	Address string `json:"address"`
	Status  string `json:"status"`
	Code    string `json:"code,omitempty"` // RFC 3463
	Detail  string `json:"detail,omitempty"`
}
