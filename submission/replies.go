package submission

import (
	"example.org/mta/internal/reply"

	"github.com/emersion/go-smtp"
)

// refusal is an answer that this package gives, most of them refusals. docs/submission.md has a
// row for each; a test compares the two.
type refusal struct {
	code     int
	enhanced reply.Enhanced
	text     string // for fmt
}

// Connections.
var (
	closingNow         = refusal{221, reply.Enhanced{2, 0, 0}, "closing connection"}
	tooManyConnections = refusal{421, reply.Enhanced{4, 3, 2}, "too many connections, try again later"}
	tooManyOfTenant    = refusal{421, reply.Enhanced{4, 7, 1}, "too many connections of tenant %s (%d), close some"}
	tooLargeShare      = refusal{421, reply.Enhanced{4, 7, 1}, "connections are scarce and tenant %s has its share of them, close some"}
	tooManyFromClient  = refusal{421, reply.Enhanced{4, 7, 0}, "too many connections from %s, close some"}
	noProxyHeader      = refusal{421, reply.Enhanced{4, 7, 0}, "PROXY header expected from %s"}
	talksEarly         = refusal{554, reply.Enhanced{5, 5, 1}, "you spoke before the greeting"}
	shuttingDown       = refusal{421, reply.Enhanced{4, 3, 2}, "this relay is shutting down, try again later"}
	idleTooLong        = refusal{421, reply.Enhanced{4, 4, 2}, "no command within %s, closing connection"}
	tooManyErrors      = refusal{421, reply.Enhanced{4, 7, 0}, "too many errors, closing connection"}
	crowdedOut         = refusal{421, reply.Enhanced{4, 3, 2}, "connections are scarce and this one has sent no mail yet, closing it"}
	tooManyIdle        = refusal{421, reply.Enhanced{4, 7, 0}, "too many commands without a message, closing connection"}
	shedTooOften       = refusal{421, reply.Enhanced{4, 3, 2}, "too many tries while this relay is overloaded, closing connection; try again in a few minutes"}
	tooManyMessages    = refusal{421, reply.Enhanced{4, 7, 0}, "limit of %d messages on a connection reached, open another"}
)

// Command lines.
var (
	notSMTP        = refusal{500, reply.Enhanced{5, 5, 2}, "EHLO expected, closing connection"}
	unknownCommand = refusal{500, reply.Enhanced{5, 5, 2}, "command not recognised"}
	notImplemented = refusal{502, reply.Enhanced{5, 5, 1}, "command not implemented"}
	lineTooLong    = refusal{500, reply.Enhanced{5, 5, 2}, "command line longer than %d octets"}
	bareLFCommand  = refusal{500, reply.Enhanced{5, 5, 2}, "command line must end in CRLF"}
	controlInLine  = refusal{500, reply.Enhanced{5, 5, 2}, "control character in command line"}
	badHelo        = refusal{501, reply.Enhanced{5, 5, 4}, "a domain or an address literal must follow %s"}
	greetFirst     = refusal{503, reply.Enhanced{5, 5, 1}, "EHLO first"}
	mailFirst      = refusal{503, reply.Enhanced{5, 5, 1}, "MAIL first"}
	nestedMail     = refusal{503, reply.Enhanced{5, 5, 1}, "a transaction is open, end it or send RSET"}
	midTransfer    = refusal{503, reply.Enhanced{5, 5, 1}, "a BDAT transfer is open, end it or send RSET"}
	outOfStep      = refusal{503, reply.Enhanced{5, 5, 1}, "%s must be the last command before its reply, closing connection"}
	noRecipients   = refusal{554, reply.Enhanced{5, 5, 1}, "no valid recipients"}
	noParameters   = refusal{501, reply.Enhanced{5, 5, 4}, "%s takes no parameters"}
	badChunk       = refusal{501, reply.Enhanced{5, 5, 4}, "malformed BDAT, closing connection"}
	alreadyTLS     = refusal{503, reply.Enhanced{5, 5, 1}, "TLS is already on"}
	readyForTLS    = refusal{220, reply.Enhanced{2, 0, 0}, "ready to start TLS"}
	commandDone    = refusal{250, reply.Enhanced{2, 0, 0}, "ok"}
	cannotVerify   = refusal{252, reply.Enhanced{2, 0, 0}, "addresses are not verified, send mail to find out"}
	senderTaken    = refusal{250, reply.Enhanced{2, 1, 0}, "sender ok"}
	recipientTaken = refusal{250, reply.Enhanced{2, 1, 5}, "recipient ok"}
	chunkTaken     = refusal{250, reply.Enhanced{2, 0, 0}, "chunk received"}
	unknownParam   = refusal{555, reply.Enhanced{5, 5, 4}, "parameter %s is not supported"} // RFC 5321, 4.1.1.11
	repeatedParam  = refusal{501, reply.Enhanced{5, 5, 4}, "parameter %s is given twice"}
	longParam      = refusal{501, reply.Enhanced{5, 5, 4}, "parameter %s is longer than %d characters"}
	badParam       = refusal{501, reply.Enhanced{5, 5, 4}, "parameter %s has a malformed value"}
	noTLS          = refusal{502, reply.Enhanced{5, 5, 1}, "TLS is not available"}
	chunksTooBig   = refusal{552, reply.Enhanced{5, 3, 4}, "message larger than the SIZE limit"}
	tooBig         = refusal{552, reply.Enhanced{5, 3, 4}, "message larger than %d octets"}
	tooManyRcpts   = refusal{452, reply.Enhanced{4, 5, 3}, "limit of %d recipients reached, send the rest in another transaction"}
)

// Logins (RFC 4954, 4 and 6).
var (
	loginTaken       = refusal{235, reply.Enhanced{2, 7, 0}, "logged in"}
	loginDenied      = refusal{535, reply.Enhanced{5, 7, 8}, "user name or password is wrong"}
	loginsTooMany    = refusal{454, reply.Enhanced{4, 7, 0}, "too many logins from your network or as this user, try again later"}
	loginUnable      = refusal{454, reply.Enhanced{4, 7, 0}, "logins can't be checked now, try again later"}
	loginCancelled   = refusal{501, reply.Enhanced{5, 7, 0}, "login cancelled"}
	loginFirst       = refusal{530, reply.Enhanced{5, 7, 0}, "log in first"}
	loginOver        = refusal{421, reply.Enhanced{4, 7, 0}, "your login is no longer valid, log in again"}
	authInClear      = refusal{538, reply.Enhanced{5, 7, 11}, "logins need TLS: send STARTTLS first"}
	authInMail       = refusal{503, reply.Enhanced{5, 5, 1}, "no login within a transaction, end it or send RSET"}
	alreadyLoggedIn  = refusal{503, reply.Enhanced{5, 5, 1}, "already logged in"}
	noMechanism      = refusal{501, reply.Enhanced{5, 5, 4}, "a mechanism must follow AUTH"}
	unknownMechanism = refusal{504, reply.Enhanced{5, 5, 4}, "this mechanism is not offered here"}
	badResponse      = refusal{501, reply.Enhanced{5, 5, 2}, "malformed response in the login"}
	responseTooLong  = refusal{500, reply.Enhanced{5, 5, 6}, "line of the login is too long"}
	tooManyLogins    = refusal{421, reply.Enhanced{4, 7, 0}, "too many failed logins, closing connection"}
)

// Overload.
var shed = refusal{451, reply.Enhanced{4, 3, 2}, "this relay is overloaded and takes more important mail first, try again in a few minutes"}

// Addresses.
var (
	badSender        = refusal{501, reply.Enhanced{5, 1, 7}, "%s"}
	badRecipient     = refusal{501, reply.Enhanced{5, 1, 3}, "%s"}
	badORcpt         = refusal{501, reply.Enhanced{5, 5, 4}, "control character in ORCPT"}
	senderNotASCII   = refusal{550, reply.Enhanced{5, 6, 7}, "non-ASCII sender needs SMTPUTF8"}    // RFC 6531, 3.5
	rcptNotASCII     = refusal{553, reply.Enhanced{5, 6, 7}, "non-ASCII recipient needs SMTPUTF8"} // RFC 6531, 3.5
	relayDenied      = refusal{550, reply.Enhanced{5, 7, 1}, "relaying denied for %s"}
	notSender        = refusal{550, reply.Enhanced{5, 7, 1}, "you may not send as %s"}                                                  // RFC 6409, 6.1
	notAuthor        = refusal{550, reply.Enhanced{5, 7, 1}, "you may not send as %s, which is in From; use an address of yours there"} // RFC 6409, 6.1
	badFrom          = refusal{550, reply.Enhanced{5, 7, 1}, "message must have one From field with addresses of yours"}
	badTenantField   = refusal{554, reply.Enhanced{5, 5, 4}, "X-MTA-Tenant must name one tenant"}
	unknownTenant    = refusal{550, reply.Enhanced{5, 7, 1}, "X-MTA-Tenant names %s, and there is no such tenant here"}
	suppressedRcpt   = refusal{550, reply.Enhanced{5, 1, 1}, "address is suppressed (%s); to remove the entry: mta suppress remove %s"}
	noMailbox        = refusal{550, reply.Enhanced{5, 1, 1}, "no such mailbox, its host says: %s"}
	noPostmasterHere = refusal{550, reply.Enhanced{5, 1, 1}, "no postmaster is configured here"}
)

// Limits of tenants (RFC 3463, 3.8).
var (
	overRate     = refusal{450, reply.Enhanced{4, 7, 1}, "tenant %s may submit %s; try again in %d seconds"}
	overMessages = refusal{450, reply.Enhanced{4, 7, 1}, "tenant %s has its %d messages in the queue; try again when some have left it"}
	overOctets   = refusal{450, reply.Enhanced{4, 7, 1}, "tenant %s has its %d bytes in the queue, or would with this message; try again when some have left it"}
)

// Content.
var (
	contentTimeout  = refusal{421, reply.Enhanced{4, 4, 2}, "content came too slowly, closing connection"}
	contentCut      = refusal{421, reply.Enhanced{4, 4, 2}, "connection lost within content"}
	contentOverrun  = refusal{552, reply.Enhanced{5, 3, 4}, "message far larger than %d octets, closing connection"}
	headerTooBig    = refusal{552, reply.Enhanced{5, 3, 4}, "header section larger than %d octets"}
	bareNewline     = refusal{550, reply.Enhanced{5, 6, 11}, "message has a CR or LF that stands alone; lines must end in CRLF"}
	nulInContent    = refusal{550, reply.Enhanced{5, 6, 0}, "message has a NUL octet"}
	longLine        = refusal{550, reply.Enhanced{5, 6, 0}, "message has a line longer than %d octets"}
	headerNotUTF8   = refusal{550, reply.Enhanced{5, 6, 0}, "header section has octets that are not UTF-8"}
	badHold         = refusal{554, reply.Enhanced{5, 5, 4}, "can't schedule the message: %s"}
	heldTooLong     = refusal{554, reply.Enhanced{5, 5, 4}, "messages can be scheduled %d seconds ahead at most, spread included"}
	noScheduling    = refusal{550, reply.Enhanced{5, 7, 1}, "scheduling is not allowed here"}
	tooManyHops     = refusal{554, reply.Enhanced{5, 4, 6}, "more than %d Received fields, this is a mail loop"}
	diskFull        = refusal{452, reply.Enhanced{4, 3, 1}, "insufficient storage, try again later"}
	memoryFull      = refusal{452, reply.Enhanced{4, 3, 1}, "too many messages are coming in, try again later"}
	storeFailed     = refusal{451, reply.Enhanced{4, 3, 0}, "message could not be stored, try again later"}
	internalError   = refusal{421, reply.Enhanced{4, 3, 0}, "internal error, closing connection; try again later"}
	transferAborted = refusal{451, reply.Enhanced{4, 3, 0}, "message transfer aborted"}
)

// reply fills in the text. The command is added where the answer is given.
func (r refusal) reply(args ...any) reply.Reply {
	return reply.Local(r.code, r.enhanced, "", r.text, args...)
}

// smtpError is r in the library's own type: a wrapped one would lose its code there.
func smtpError(r reply.Reply) *smtp.SMTPError {
	e := r.Status()
	return &smtp.SMTPError{
		Code:         r.Code,
		EnhancedCode: smtp.EnhancedCode{int(e[0]), int(e[1]), int(e[2])},
		Message:      ours + r.Text,
	}
}
