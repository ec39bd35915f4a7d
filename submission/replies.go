package submission

import (
	"example.org/mta/internal/reply"

	"github.com/emersion/go-smtp"
)

// These are the answers that this package gives beside those of package intake. docs/submission.md has a row
// for each; a test compares the two.

// Connections.
var (
	closingNow         = reply.NewForm(221, reply.Enhanced{2, 0, 0}, "closing connection")
	tooManyConnections = reply.NewForm(421, reply.Enhanced{4, 3, 2}, "too many connections, try again later")
	tooManyOfTenant    = reply.NewForm(421, reply.Enhanced{4, 7, 1},
		"too many connections of tenant %s (%d), close some")
	tooLargeShare = reply.NewForm(421, reply.Enhanced{4, 7, 1},
		"connections are scarce and tenant %s has its share of them, close some")
	tooManyFromClient = reply.NewForm(421, reply.Enhanced{4, 7, 0}, "too many connections from %s, close some")
	noProxyHeader     = reply.NewForm(421, reply.Enhanced{4, 7, 0}, "PROXY header expected from %s")
	talksEarly        = reply.NewForm(554, reply.Enhanced{5, 5, 1}, "you spoke before the greeting")
	shuttingDown      = reply.NewForm(421, reply.Enhanced{4, 3, 2}, "this relay is shutting down, try again later")
	draining          = reply.NewForm(421, reply.Enhanced{4, 3, 2}, "this relay takes no new mail now, try again later")
	reclaimed         = reply.NewForm(421, reply.Enhanced{4, 3, 2},
		"connections are scarce and others have fewer, try again later")
	dismissed = reply.NewForm(421, reply.Enhanced{4, 3, 2},
		"closed by the operator of this relay, try again later")
	idleTooLong   = reply.NewForm(421, reply.Enhanced{4, 4, 2}, "no command within %s, closing connection")
	tooManyErrors = reply.NewForm(421, reply.Enhanced{4, 7, 0}, "too many errors, closing connection")
	crowdedOut    = reply.NewForm(421, reply.Enhanced{4, 3, 2},
		"connections are scarce and this one has sent no mail yet, closing it")
	tooManyIdle = reply.NewForm(421, reply.Enhanced{4, 7, 0},
		"too many commands without a message, closing connection")
)

// Command lines.
var (
	notSMTP        = reply.NewForm(500, reply.Enhanced{5, 5, 2}, "EHLO expected, closing connection")
	unknownCommand = reply.NewForm(500, reply.Enhanced{5, 5, 2}, "command not recognised")
	notImplemented = reply.NewForm(502, reply.Enhanced{5, 5, 1}, "command not implemented")
	lineTooLong    = reply.NewForm(500, reply.Enhanced{5, 5, 2}, "command line longer than %d octets")
	bareLFCommand  = reply.NewForm(500, reply.Enhanced{5, 5, 2}, "command line must end in CRLF")
	controlInLine  = reply.NewForm(500, reply.Enhanced{5, 5, 2}, "control character in command line")
	badHelo        = reply.NewForm(501, reply.Enhanced{5, 5, 4}, "a domain or an address literal must follow %s")
	greetFirst     = reply.NewForm(503, reply.Enhanced{5, 5, 1}, "EHLO first")
	mailFirst      = reply.NewForm(503, reply.Enhanced{5, 5, 1}, "MAIL first")
	nestedMail     = reply.NewForm(503, reply.Enhanced{5, 5, 1}, "a transaction is open, end it or send RSET")
	midTransfer    = reply.NewForm(503, reply.Enhanced{5, 5, 1}, "a BDAT transfer is open, end it or send RSET")
	outOfStep      = reply.NewForm(503, reply.Enhanced{5, 5, 1},
		"%s must be the last command before its reply (RFC 2920, 3.1), closing connection")
	noParameters   = reply.NewForm(501, reply.Enhanced{5, 5, 4}, "%s takes no parameters")
	badChunk       = reply.NewForm(501, reply.Enhanced{5, 5, 4}, "malformed BDAT, closing connection")
	alreadyTLS     = reply.NewForm(503, reply.Enhanced{5, 5, 1}, "TLS is already on")
	readyForTLS    = reply.NewForm(220, reply.Enhanced{2, 0, 0}, "ready to start TLS")
	commandDone    = reply.NewForm(250, reply.Enhanced{2, 0, 0}, "ok")
	cannotVerify   = reply.NewForm(252, reply.Enhanced{2, 0, 0}, "addresses are not verified, send mail to find out")
	senderTaken    = reply.NewForm(250, reply.Enhanced{2, 1, 0}, "sender ok")
	recipientTaken = reply.NewForm(250, reply.Enhanced{2, 1, 5}, "recipient ok")
	chunkTaken     = reply.NewForm(250, reply.Enhanced{2, 0, 0}, "chunk received")
	unknownParam   = reply.NewForm(555, reply.Enhanced{5, 5, 4}, "parameter %s is not supported") // RFC 5321, 4.1.1.11
	repeatedParam  = reply.NewForm(501, reply.Enhanced{5, 5, 4}, "parameter %s is given twice")
	longParam      = reply.NewForm(501, reply.Enhanced{5, 5, 4}, "parameter %s is longer than %d characters")
	badParam       = reply.NewForm(501, reply.Enhanced{5, 5, 4}, "parameter %s has a malformed value")
	noCertificate  = reply.NewForm(454, reply.Enhanced{4, 7, 0}, "TLS has no certificate yet, try again later")
	noTLS          = reply.NewForm(502, reply.Enhanced{5, 5, 1}, "TLS is not available")
	chunksTooBig   = reply.NewForm(552, reply.Enhanced{5, 3, 4}, "message larger than the SIZE limit")
)

// Logins (RFC 4954, 4 and 6).
var (
	loginTaken    = reply.NewForm(235, reply.Enhanced{2, 7, 0}, "logged in")
	loginDenied   = reply.NewForm(535, reply.Enhanced{5, 7, 8}, "user name or password is wrong")
	loginsTooMany = reply.NewForm(454, reply.Enhanced{4, 7, 0},
		"too many logins from your network or as this user, try again later")
	loginUnable      = reply.NewForm(454, reply.Enhanced{4, 7, 0}, "logins can't be checked now, try again later")
	loginCancelled   = reply.NewForm(501, reply.Enhanced{5, 7, 0}, "login cancelled")
	loginFirst       = reply.NewForm(530, reply.Enhanced{5, 7, 0}, "log in first")
	loginOver        = reply.NewForm(421, reply.Enhanced{4, 7, 0}, "your login is no longer valid, log in again")
	authInClear      = reply.NewForm(538, reply.Enhanced{5, 7, 11}, "logins need TLS: send STARTTLS first")
	authInMail       = reply.NewForm(503, reply.Enhanced{5, 5, 1}, "no login within a transaction, end it or send RSET")
	alreadyLoggedIn  = reply.NewForm(503, reply.Enhanced{5, 5, 1}, "already logged in")
	noMechanism      = reply.NewForm(501, reply.Enhanced{5, 5, 4}, "a mechanism must follow AUTH")
	unknownMechanism = reply.NewForm(504, reply.Enhanced{5, 5, 4}, "this mechanism is not offered here")
	badResponse      = reply.NewForm(501, reply.Enhanced{5, 5, 2}, "malformed response in the login")
	responseTooLong  = reply.NewForm(500, reply.Enhanced{5, 5, 6}, "line of the login is too long")
	tooManyLogins    = reply.NewForm(421, reply.Enhanced{4, 7, 0}, "too many failed logins, closing connection")
)

// Addresses.
var (
	badSender        = reply.NewForm(501, reply.Enhanced{5, 1, 7}, "%s")
	badRecipient     = reply.NewForm(501, reply.Enhanced{5, 1, 3}, "%s")
	badORcpt         = reply.NewForm(501, reply.Enhanced{5, 5, 4}, "control character in ORCPT")
	noSuchAddress    = reply.NewForm(550, reply.Enhanced{5, 1, 1}, "there is no such address here")
	expiredAddress   = reply.NewForm(550, reply.Enhanced{5, 1, 1}, "this return path has expired")
	apart            = reply.NewForm(452, reply.Enhanced{4, 5, 3}, "send this recipient in another transaction")
	noPostmasterHere = reply.NewForm(550, reply.Enhanced{5, 1, 1}, "no postmaster is configured here")
)

// Content.
var (
	contentTimeout = reply.NewForm(421, reply.Enhanced{4, 4, 2}, "content came too slowly, closing connection")
	contentCut     = reply.NewForm(421, reply.Enhanced{4, 4, 2}, "connection lost within content")
	contentOverrun = reply.NewForm(552, reply.Enhanced{5, 3, 4},
		"message far larger than %d octets, closing connection")
	mailTaken       = reply.NewForm(250, reply.Enhanced{2, 0, 0}, "taken")
	mailTooLarge    = reply.NewForm(552, reply.Enhanced{5, 3, 4}, "mail to this address can have %d octets")
	mailLoop        = reply.NewForm(554, reply.Enhanced{5, 4, 6}, "this mail was here before, this is a mail loop")
	internalError   = reply.NewForm(421, reply.Enhanced{4, 3, 0}, "internal error, closing connection; try again later")
	transferAborted = reply.NewForm(451, reply.Enhanced{4, 3, 0}, "message transfer aborted")
)

// smtpError is r in the library's own type: a wrapped one would lose its code there.
func smtpError(r reply.Reply) *smtp.SMTPError {
	e := r.Status()
	return &smtp.SMTPError{
		Code:         r.Code,
		EnhancedCode: smtp.EnhancedCode{int(e[0]), int(e[1]), int(e[2])},
		Message:      ours + r.Text,
	}
}
