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

	"mta/internal/envelope"
	"mta/internal/reply"
)

// Type is what kind of event a record tells of. The names are KumoMTA's, but for Lost.
type Type string

// The types. A message has one Reception for each of its recipients, and in the end one of
// Delivery, Bounce, Expiration and AdminBounce for each.
const (
	Reception        Type = "Reception"        // accepted into the queue
	Delivery         Type = "Delivery"         // taken by the remote host
	TransientFailure Type = "TransientFailure" // an attempt failed, there will be another
	Bounce           Type = "Bounce"           // refused for good
	Expiration       Type = "Expiration"       // given up after max_age
	AdminBounce      Type = "AdminBounce"      // bounced or removed by an operator
	Rejection        Type = "Rejection"        // refused by this relay, never queued
	Lost             Type = "Lost"             // this many records could not be written
)

// Types lists all types.
var Types = []Type{Reception, Delivery, TransientFailure, Bounce, Expiration, AdminBounce, Rejection, Lost}

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
	Peer     Peer

	Time     time.Time // of the event
	Created  time.Time // when the message was accepted
	Release  time.Time // when a scheduled message is let go to this recipient; zero: at once
	Attempts int       // including this one

	EgressPool   string // the pool of the tenant's sources
	EgressSource string // the source that was used

	Tenant   string
	Campaign string
	Session  string // joins the records of one connection, in or out

	ReceptionProtocol string // as ESMTPS
	DeliveryProtocol  string // as ESMTP
	TLS               string // version and cipher, parted by a space; "" for clear text

	Count int64 // how many records were lost, for Lost
}

// Peer is the other end: who submitted the message, or where it was delivered.
type Peer struct {
	Name string // what it called itself in EHLO; the exchanger's name
	Addr netip.Addr
}
