package intake

import "example.org/mta/internal/reply"

// These are the answers that this package gives. docs/submission.md has a row for each; a test compares the
// two.

// Overload.
var (
	shed = reply.NewForm(451, reply.Enhanced{4, 3, 2},
		"this relay is overloaded and takes more important mail first, try again in a few minutes")
	shedTooOften = reply.NewForm(421, reply.Enhanced{4, 3, 2},
		"too many tries while this relay is overloaded, closing connection; try again in a few minutes")
)

// Limits.
var (
	tooBig       = reply.NewForm(552, reply.Enhanced{5, 3, 4}, "message larger than %d octets")
	tooManyRcpts = reply.NewForm(452, reply.Enhanced{4, 5, 3},
		"limit of %d recipients reached, send the rest in another transaction")
)

// Addresses.
var (
	// NoRecipients refuses a message that nobody gets.
	NoRecipients = reply.NewForm(554, reply.Enhanced{5, 5, 1}, "no valid recipients")

	senderNotASCII = reply.NewForm(550, reply.Enhanced{5, 6, 7}, "non-ASCII sender needs SMTPUTF8")    // RFC 6531, 3.5
	rcptNotASCII   = reply.NewForm(553, reply.Enhanced{5, 6, 7}, "non-ASCII recipient needs SMTPUTF8") // RFC 6531, 3.5
	relayDenied    = reply.NewForm(550, reply.Enhanced{5, 7, 1}, "relaying denied for %s")
	// RFC 6409, 6.1
	notSender = reply.NewForm(550, reply.Enhanced{5, 7, 1}, "you may not send as %s")
	// RFC 6409, 6.1
	notAuthor = reply.NewForm(550, reply.Enhanced{5, 7, 1},
		"you may not send as %s, which is in From; use an address of yours there")
	badFrom = reply.NewForm(550, reply.Enhanced{5, 7, 1},
		"message must have one From field with addresses of yours")
	unsignable = reply.NewForm(550, reply.Enhanced{5, 6, 0},
		"DKIM: %s; write one From field, such as From: Name <name@example.com>")
	badTenantField = reply.NewForm(554, reply.Enhanced{5, 5, 4}, "X-MTA-Tenant must name one tenant")
	unknownTenant  = reply.NewForm(550, reply.Enhanced{5, 7, 1},
		"X-MTA-Tenant names %s, and there is no such tenant here")
	badPoolField = reply.NewForm(554, reply.Enhanced{5, 5, 4}, "%s must name one pool")
	unknownPool  = reply.NewForm(550, reply.Enhanced{5, 7, 1},
		"%s names %s, and there is no such pool for your mail here")
	suppressedRcpt = reply.NewForm(550, reply.Enhanced{5, 1, 1},
		"address is suppressed (%s); to remove the entry: mta suppress remove %s")
	// suppressedByKey is for a tenant's application, which can't use our commands.
	suppressedByKey = reply.NewForm(550, reply.Enhanced{5, 1, 1},
		"address is suppressed (%s); if the entry is wrong: POST /v1/suppressions/remove")
	noMailbox = reply.NewForm(550, reply.Enhanced{5, 1, 1}, "no such mailbox, its host says: %s")
)

// Limits of tenants (RFC 3463, 3.8).
var (
	overRate     = reply.NewForm(450, reply.Enhanced{4, 7, 1}, "tenant %s may submit %s; try again in %d seconds")
	overMessages = reply.NewForm(450, reply.Enhanced{4, 7, 1},
		"tenant %s has its %d messages in the queue; try again when some have left it")
	overOctets = reply.NewForm(450, reply.Enhanced{4, 7, 1},
		"tenant %s has its %d bytes in the queue, or would with this message; try again when some have left it")
	overSharedRate = reply.NewForm(450, reply.Enhanced{4, 7, 1},
		"tenant %s may submit %s at all relays of the cluster, and this one %s; try again in %d seconds")
	overShared = reply.NewForm(450, reply.Enhanced{4, 7, 1},
		"tenant %s may have %d %s in the queues of all relays of the cluster, and this one %s; try again in a minute")
)

// Content.
var (
	headerTooBig = reply.NewForm(552, reply.Enhanced{5, 3, 4}, "header section larger than %d octets")
	bareNewline  = reply.NewForm(550, reply.Enhanced{5, 6, 11},
		"message has a CR or LF that stands alone; lines must end in CRLF")
	nulInContent = reply.NewForm(550, reply.Enhanced{5, 6, 0}, "message has a NUL octet")
	longLine     = reply.NewForm(550, reply.Enhanced{5, 6, 0}, "message has a line longer than %d octets")
	badMeta      = reply.NewForm(554, reply.Enhanced{5, 5, 4}, "X-MTA-Meta: %s")
	badKey       = reply.NewForm(554, reply.Enhanced{5, 5, 4}, "X-MTA-Idempotency-Key: %s")
	keyOfAnother = reply.NewForm(554, reply.Enhanced{5, 5, 4},
		"X-MTA-Idempotency-Key was used for another message; give each message a new one")
	keyUnderWay = reply.NewForm(451, reply.Enhanced{4, 5, 0},
		"a message with this X-MTA-Idempotency-Key is being taken in, try again in a few seconds")
	badHold     = reply.NewForm(554, reply.Enhanced{5, 5, 4}, "can't schedule the message: %s")
	heldTooLong = reply.NewForm(554, reply.Enhanced{5, 5, 4},
		"messages can be scheduled %d seconds ahead at most, spread included")
	noScheduling = reply.NewForm(550, reply.Enhanced{5, 7, 1}, "scheduling is not allowed here")
	tooManyHops  = reply.NewForm(554, reply.Enhanced{5, 4, 6}, "more than %d Received fields, this is a mail loop")
	// Unfiltered refuses a message on which a filter failed.
	Unfiltered = reply.NewForm(451, reply.Enhanced{4, 3, 0},
		"message can't be checked by filter %s now, try again later")
	// FilterBusy refuses a message that has waited too long for a filter.
	FilterBusy = reply.NewForm(451, reply.Enhanced{4, 3, 2},
		"filter %s has too many messages to check, try again in a few minutes")
	// FilterMisfit refuses a message that would not keep to the limits with a filter's changes.
	FilterMisfit = reply.NewForm(552, reply.Enhanced{5, 3, 4}, "with the changes of filter %s: %s")
	// FilterRefuses and FilterDefers refuse a message for a filter that gives no reply.
	FilterRefuses = reply.NewForm(550, reply.Enhanced{5, 7, 1}, "message refused by filter %s")
	FilterDefers  = reply.NewForm(451, reply.Enhanced{4, 7, 1}, "message deferred by filter %s, try again later")
	diskFull      = reply.NewForm(452, reply.Enhanced{4, 3, 1}, "insufficient storage, try again later")
	// MemoryFull refuses what incoming mail has no memory left for.
	MemoryFull  = reply.NewForm(452, reply.Enhanced{4, 3, 1}, "too many messages are coming in, try again later")
	storeFailed = reply.NewForm(451, reply.Enhanced{4, 3, 0}, "message could not be stored, try again later")
)
