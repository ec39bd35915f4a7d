// Package accounting writes and reads the log of what became of each message: a line of JSON for each event, for
// billing, reporting and "where is my mail". It is not the store of truth, that is the queue.
//
// The way through it: the witness of an event makes a Record, Writer.Add encodes it into a buffer (encode.go), the
// writer's goroutine puts the buffer into files that it rotates and deletes in time (writer.go, files.go), Read finds
// records again (query.go, reader.go).
//
// Long-lived goroutines: one for each Writer, which owns the current file. Close stops it and
// waits for it.
package accounting

import (
	"net/netip"
	"time"

	"github.com/go-json-experiment/json"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Type is the kind of a record's event. The names are KumoMTA's, except Cancellation, Transfer, Damage, Unsubscribe,
// Warmup, Lost and Gap.
type Type string

// The types. A message has one Reception for each of its recipients, and in the end one of
// Delivery, Bounce, Expiration, AdminBounce, Cancellation and Transfer for each.
const (
	Reception        Type = "Reception"        // accepted into the queue
	Delivery         Type = "Delivery"         // taken by the remote host
	TransientFailure Type = "TransientFailure" // an attempt failed, there will be another
	Bounce           Type = "Bounce"           // refused for good
	Expiration       Type = "Expiration"       // given up after max_age
	AdminBounce      Type = "AdminBounce"      // bounced or removed by an operator
	Cancellation     Type = "Cancellation"     // cancelled by its sender
	Transfer         Type = "Transfer"         // moved to another relay, or an archive
	Rejection        Type = "Rejection"        // refused by this relay, never queued
	// a message in the queue whose envelope can't be read: nobody else can be told
	Damage Type = "Damage"
	// a report that came back as mail: a recipient's host accepted the message and could not deliver it
	OOB         Type = "OOB"
	Feedback    Type = "Feedback"    // a complaint by a recipient, as mail in the abuse reporting format
	Unsubscribe Type = "Unsubscribe" // a recipient unsubscribed from a tenant's mail by a link in a message
	Warmup      Type = "Warmup"      // something happened to the warm-up of a source
	Lost        Type = "Lost"        // this many records could not be written
)

// Gap stands in a stream of records for those that were deleted before the stream got them. It is in no file.
const Gap Type = "Gap"

// Types lists all types that are in files.
var Types = []Type{Reception, Delivery, TransientFailure, Bounce, Expiration, AdminBounce, Cancellation, Transfer,
	Rejection, Damage, OOB, Feedback, Unsubscribe, Warmup, Lost}

// Record is one event for one recipient. What is zero is left out of the log where it has no meaning. Its tags are the
// names in the log: Parse reads by them, and encode writes them.
type Record struct {
	Type Type `json:"type"`
	Message
	Recipient envelope.Address `json:"recipient"`
	// what the message waited for: the recipient's domain, and the tenant's name
	Queue   string    `json:"queue"`
	Release time.Time `json:"scheduled_time"` // when a scheduled message is let go to this recipient; zero: at once
	Attempt

	Response reply.Reply `json:"response"`              // of the remote host; of this relay for Reception and Rejection
	Class    string      `json:"bounce_classification"` // of the response, or of a report; "" for none
	Peer     Peer        `json:"peer_address"`
	Time     time.Time   `json:"event_time"` // of the event

	Session           string `json:"session_id"`         // joins the records of one connection, in or out
	ReceptionProtocol string `json:"reception_protocol"` // as ESMTPS

	Report Object `json:"feedback_report"` // what a Feedback was about, in its own fields
	// how the recipient of an OOB, Feedback or Unsubscribe is known, see the constants
	MatchedBy string `json:"matched_by"`

	Event string `json:"event"` // of a Warmup: advanced, held, back and the like
	Stage int    `json:"stage"` // of a Warmup, counted from 1
	// how many records were lost, for Lost; how many refusals this stands for, for Rejection
	Count int64 `json:"count"`

	EventID string `json:"event_id"` // set by Parse: the Writer knows where a record stands; "" of older records
}

// Message is what a record has of its message: what the envelope says, and what its sender wants to find it by.
type Message struct {
	ID      envelope.ID      `json:"id"` // 0 when there is none (Rejection)
	Sender  envelope.Address `json:"sender"`
	Size    int64            `json:"size"`         // octets of the content
	Created time.Time        `json:"created_time"` // when it was accepted

	User     string   `json:"user"` // who had logged in to submit it
	Key      string   `json:"key"`  // the name of the API key that submitted it
	Tenant   string   `json:"tenant"`
	Campaign string   `json:"campaign"`
	Tags     []string `json:"tags"`
	Meta     Object   `json:"meta"`     // as the sender gave it
	TraceID  string   `json:"trace_id"` // of the request that submitted it; "" for none
	Headers  Object   `json:"headers"`  // fields of the message's header, see Config of the relay
	// the relay that accepted it, and its id there, as node/id; "" for this relay
	MovedFrom string `json:"moved_from"`
}

// Attempt is what a record has of the attempt at its recipient.
type Attempt struct {
	Site     string `json:"site"`          // whose hosts were tried; "" for Reception
	Provider string `json:"provider_name"` // whom the site belongs to; "" for nobody
	Attempts int    `json:"num_attempts"`  // including this one

	EgressPool   string `json:"egress_pool"`   // the pool of the tenant's sources
	EgressSource string `json:"egress_source"` // the source that was used

	DeliveryProtocol string         `json:"delivery_protocol"` // as ESMTP
	TLS              TLS            `json:",embed"`            // of an outgoing connection; zero for clear text
	Local            netip.AddrPort `json:"source_address"`    // our end of it; port 0 where it is not known

	Queued time.Duration `json:"queue_time"` // from acceptance, or release, until delivery had it for this attempt
	Phases Phases        `json:"attempt_time"`
}

// Object is a JSON object as somebody else made it; "" for none.
type Object string

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(b []byte) error {
	*o = Object(b)
	return nil
}

// FeedbackType is the Feedback-Type of the report of a Feedback (RFC 5965, 3.1), such as "abuse"; "" when it has none.
func (r *Record) FeedbackType() string {
	var report struct {
		Type string `json:"feedback_type"`
	}
	_ = json.Unmarshal([]byte(r.Report), &report) // what is no object has no type
	return report.Type
}

// The values of Record.MatchedBy, from the surest to the least sure.
const (
	ByToken         = "token"          // the address that the report was sent to
	ByReturnedToken = "returned_token" // what the report returns of the message
	ByMessageID     = "message_id"     // the Message-ID in what it returns
	ByFields        = "fields"         // what the report says of itself
)

// TLS is how a connection was protected.
type TLS struct {
	Version string `json:"tls_protocol_version"` // as TLSv1.3
	Cipher  string `json:"tls_cipher"`           // as TLS_AES_128_GCM_SHA256
	Trust   string `json:"tls_trust"`            // Verified or Unverified: whether the certificate is the host's
	By      string `json:"tls_verified_by"`      // what vouches for that: PKIX, STS, DANE; "" when nothing does

	Certificate string `json:"tls_certificate"` // its name
}

// The values of TLS.Trust.
const (
	Verified   = "verified"
	Unverified = "unverified"
)

// Phases is how long the parts of an attempt took; 0 is a part that it did not have.
type Phases struct {
	Wait      time.Duration `json:"wait"`      // for a connection: limits, rates, other mail
	Connect   time.Duration `json:"connect"`   // while a new connection was dialed
	Handshake time.Duration `json:"handshake"` // its greeting, EHLO, STARTTLS and AUTH
	Turn      time.Duration `json:"turn"`      // on the connection, behind other messages
	Send      time.Duration `json:"send"`      // from MAIL to the end of the content
	Reply     time.Duration `json:"reply"`     // until the host's answer to that
}

// Peer is the other end: who submitted the message, or where it was delivered.
type Peer struct {
	Name string     `json:"name"` // what it called itself in EHLO; the exchanger's name
	Addr netip.Addr `json:"addr"`
}
