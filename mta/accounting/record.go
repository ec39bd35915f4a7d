// Package accounting writes and reads the log of what became of each message: a line of JSON
// for each event, for billing, reporting and "where is my mail". It is not the store of truth,
// that is the queue: records are not synced to disk, and they are never in the way of mail.
//
// The way through it: a Record is made by whoever saw the event, Writer.Add encodes it into a
// buffer (encode.go), the writer's goroutine puts the buffer into files that it rotates and
// deletes in time (writer.go, files.go), Read finds records again (query.go, reader.go).
//
// Long-lived goroutines: one for each Writer, which owns the current file. Close stops it and
// waits for it.
package accounting

import (
	"net/netip"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Type is the kind of a record's event. The names are KumoMTA's, except Cancellation, Transfer, Damage, Unsubscribe, Warmup, Lost and Gap.
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
	Damage           Type = "Damage"           // a message in the queue whose envelope can't be read: nobody else can be told
	OOB              Type = "OOB"              // a report that came back as mail: a recipient's host accepted the message and could not deliver it
	Feedback         Type = "Feedback"         // a complaint by a recipient, as mail in the abuse reporting format
	Unsubscribe      Type = "Unsubscribe"      // a recipient unsubscribed from a tenant's mail by a link in a message
	Warmup           Type = "Warmup"           // something happened to the warm-up of a source
	Lost             Type = "Lost"             // this many records could not be written
)

// Gap stands in a stream of records for those that were deleted before the stream got them. It is in no file.
const Gap Type = "Gap"

// Types lists all types that are in files.
var Types = []Type{Reception, Delivery, TransientFailure, Bounce, Expiration, AdminBounce, Cancellation, Transfer, Rejection, Damage, OOB, Feedback, Unsubscribe, Warmup, Lost}

// Record is one event for one recipient. What is zero is left out of the log where it has no
// meaning.
type Record struct {
	Type      Type
	ID        envelope.ID // of the message; 0 when there is none (Rejection)
	Sender    envelope.Address
	Recipient envelope.Address
	Queue     string // what the message waited for: the recipient's domain, and the tenant's name
	Site      string // whose hosts were tried; "" for Reception
	Provider  string // whom the site belongs to; "" for nobody
	Size      int64  // octets of the content

	Response reply.Reply // of the remote host; of this relay for Reception and Rejection
	Class    string      // of the response, or of a report; "" for none
	Peer     Peer

	Time     time.Time // of the event
	Created  time.Time // when the message was accepted
	Release  time.Time // when a scheduled message is let go to this recipient; zero: at once
	Attempts int       // including this one

	EgressPool   string // the pool of the tenant's sources
	EgressSource string // the source that was used

	User     string // who had logged in to submit it
	Key      string // the name of the API key that submitted it
	Tenant   string
	Campaign string
	Tags     []string
	Meta     string // a JSON object, as the sender gave it; "" for none
	TraceID  string // of the request that submitted it; "" for none
	Headers  string // a JSON object: fields of the message's header, see Config of the relay; "" for none
	Session  string // joins the records of one connection, in or out

	ReceptionProtocol string // as ESMTPS
	DeliveryProtocol  string // as ESMTP
	TLS               TLS    // of an outgoing connection; zero for clear text

	Local  netip.AddrPort // our end of an outgoing connection; port 0 where it is not known
	Queued time.Duration  // from acceptance, or release, until delivery had it for this attempt
	Phases Phases         // of the attempt

	Report    string // a JSON object: what a Feedback was about, in its own fields; "" for none
	MatchedBy string // how the recipient of an OOB, Feedback or Unsubscribe is known, see the constants

	Event string // of a Warmup: advanced, held, back and the like
	Stage int    // of a Warmup, counted from 1

	Count int64 // how many records were lost, for Lost; how many refusals this stands for, for Rejection
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
	Version string // as TLSv1.3
	Cipher  string // as TLS_AES_128_GCM_SHA256
	Trust   string // Verified or Unverified: whether the certificate is the host's
	By      string // what vouches for that: PKIX, STS, DANE; "" when nothing does

	Certificate string // its name
}

// The values of TLS.Trust.
const (
	Verified   = "verified"
	Unverified = "unverified"
)

// Phases is how long the parts of an attempt took; 0 is a part that it did not have.
type Phases struct {
	Wait      time.Duration // for a connection: limits, rates, other mail
	Connect   time.Duration // while a new connection was dialed
	Handshake time.Duration // its greeting, EHLO, STARTTLS and AUTH
	Turn      time.Duration // on the connection, behind other messages
	Send      time.Duration // from MAIL to the end of the content
	Reply     time.Duration // until the host's answer to that
}

// Peer is the other end: who submitted the message, or where it was delivered.
type Peer struct {
	Name string // what it called itself in EHLO; the exchanger's name
	Addr netip.Addr
}
