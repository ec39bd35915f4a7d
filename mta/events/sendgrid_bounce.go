package events

import "strings"

// bounce writes how a recipient failed.
func (o *object) bounce(recordType string, r record) {
	o.text("reason", r.reply())
	o.text("status", r.status())
	o.text("type", r.kind(recordType))
	o.text("bounce_classification", r.classification())
	o.connection(r)
}

// kind reports whether the address is at fault ("bounce": it should get no more mail), or something that can pass.
func (r record) kind(recordType string) string {
	switch {
	case recordType == "Expiration":
		return "expired"
	case r.Class != "":
		if classes[r.Class] == invalidAddress {
			return "bounce"
		}
	case r.Response.Enhanced[0] == 5 && r.Response.Enhanced[1] == 1:
		return "bounce"
	}
	return "blocked"
}

// classification is SendGrid's word for the record's class.
func (r record) classification() string {
	if c, ok := classes[r.Class]; ok {
		return c
	}
	return unclassified
}

// SendGrid's classifications.
const (
	invalidAddress     = "Invalid Address"
	mailboxUnavailable = "Mailbox Unavailable"
	reputation         = "Reputation"
	content            = "Content"
	frequency          = "Frequency or Volume Too High"
	technical          = "Technical Failure"
	unclassified       = "Unclassified"
)

// classes are SendGrid's of ours (docs/bounces.md); the others are unclassified.
var classes = map[string]string{
	"InvalidRecipient": invalidAddress,
	"BadDomain":        invalidAddress,

	"InactiveMailbox": mailboxUnavailable,
	"QuotaIssues":     mailboxUnavailable,
	"MailboxBusy":     mailboxUnavailable,

	"SpamBlock":            reputation,
	"AuthenticationFailed": reputation,
	"InvalidSender":        reputation,
	"PolicyRelated":        reputation,

	"SpamContent":          content,
	"SpamRelated":          content,
	"VirusRelated":         content,
	"ContentRelated":       content,
	"ProhibitedAttachment": content,
	"MessageTooLarge":      content,

	"RateLimited":        frequency,
	"TooManyConnections": frequency,
	"TooManyRecipients":  frequency,

	"BadConfiguration": technical,
	"BadConnection":    technical,
	"DNSFailure":       technical,
	"Greylisted":       technical,
	"HostFailure":      technical,
	"LocalFailure":     technical,
	"MessageExpired":   technical,
	"NoAnswerFromHost": technical,
	"ProtocolErrors":   technical,
	"RelayDenied":      technical,
	"RelayingIssues":   technical,
	"RoutingErrors":    technical,
	"TransientFailure": technical,
}

// suppressed reports whether this relay kept the mail from going out since the recipient is on the suppression list.
func (r record) suppressed() bool {
	return r.Class == "Suppressed" || r.Response.Local && strings.HasPrefix(r.Response.Text, suppressedText)
}

// suppressedText begins this relay's reply for a suppressed recipient.
const suppressedText = "address is suppressed"

// dropReason is SendGrid's phrase where it has one, and otherwise the reply.
func (r record) dropReason() string {
	if !r.suppressed() {
		return r.reply()
	}
	_, why, _ := strings.Cut(r.Response.Text, ": ")
	why = strings.ToLower(why)
	switch {
	case strings.Contains(why, "unsubscribe"):
		return "Unsubscribed Address"
	case strings.Contains(why, "complain"), strings.Contains(why, "by spam"):
		return "Spam Reporting Address"
	case strings.HasPrefix(why, "5"), strings.Contains(why, "bounce"), strings.Contains(why, "by report"):
		return "Bounced Address"
	}
	return r.reply()
}
