package replyclass

import "strings"

// blocked are the phrases for a block of ours, in lower case. Whatever else is said, it is that.
var blocked = []string{
	"reputation", "block list", "block-list", "blocklist", "black list", "black-list", "blacklist", "denylist", "black ip",
	"blocked using", "banned sending", "banned sender", "ip is blocked", "ip blocked", "ip address has been blocked",
	"ip has been blocked", "your ip has been", "your ip is", "mail sent from your ip", "blocked for spam", "blocked by spam statistics",
	"unusual rate of", "permanently deferred", "connections will not be accepted", "connections not accepted from",
	"not accepting mail from", "temporarily deferred due to", "spam ip", "too many invalid recipients", "suspected bounce attack",
	"not authorized to send email directly", "not authorized to send mail directly", "access from ip address", "dynamic ip",
	"access to this mail system has been rejected", "access to submit messages to this e-mail system has been rejected",
	"network is blocked", "network has been blocked", "is listed in", "are listed in", "is on our block", "client host rejected: access denied",
}

// words are phrases by which a class is known, in lower case. The first class that has one in the
// text is taken: what is about us goes before what is about the recipient, since "recipient rejected:
// your address is blocked" is about us.
var words = []struct {
	class   Class
	phrases []string
}{
	{MailboxBusy, []string{
		"user you are trying to contact is receiving", "user is receiving mail", "mailbox received too much",
		"recipient is receiving", "account is receiving mail", "recipient has exceeded their",
	}},
	{Greylisted, []string{"greylist", "graylist", "grey-list", "gray-list", "grey list", "gray list", "postgrey", "greylst"}},
	{AuthenticationFailed, []string{
		"dmarc", "dkim", "spf", "unauthenticated", "sender policy framework", "authentication check", "authentication information",
	}},
	{TooManyConnections, []string{
		"too many connection", "too many concurrent", "too many session", "too many simultaneous", "concurrent connection",
		"maximum number of connection", "exceeded the maximum number of", "too much connection", "connection limit",
	}},
	{RateLimited, []string{
		"rate limit", "ratelimit", "rate-limit", "throttl", "too fast", "too quickly", "too many message", "too many mail",
		"too many email", "received too many", "excessive volume", "frequency limited", "slow down", "sending limit", "volume limit",
		"message threshold exceeded", "ipspike", "unexpected volume",
	}},
	{SpamContent, []string{
		"suspicion of spam", "spam message", "spam or virus", "as spam", "like spam", "likely spam", "spam detected", "spam content", "spamming",
		"suspected spam", "spam is embedded", "spam score", "considered spam", "high spam", "anti-spam", "antispam",
		"unsolicited", "message is suspicious", "suspicious due to", "content denied", "content filter", "content restriction",
		"content examination", "banned content", "unsafe content", "virus", "malware", "phish", "mail rejete", "message rejected as",
	}},
	{RelayDenied, []string{
		"relay access denied", "relaying denied", "relay denied", "relay not permitted", "not permitted to relay", "relaying not allowed",
		"unable to relay", "relaying is not", "relay is not", "we do not relay", "domain isn't in my list",
	}},
	{PolicyRelated, []string{
		"policy", "policies", "not allowed to send", "no rdns", "reverse dns", "reverse hostname", "find your hostname", "dns ptr", "no ptr", "ptr record", "bad helo",
		"sender rejected", "sender address rejected", "sender address blocked", "envelope blocked", "invalid sender", "invalid domain",
		"emetteur invalide", "administrative prohibition", "not accepted for", "access denied", "permission denied", "host network not allowed",
	}},
	{InvalidRecipient, []string{
		"user unknown", "unknown user", "no such user", "user not found", "unknown recipient", "recipient unknown", "no such recipient",
		"recipient not found", "mailbox not found", "no mailbox", "no such mailbox", "mailbox unavailable", "does not exist",
		"doesn't exist", "doesn't have a", "do not have a", "invalid recipient", "recipient rejected", "recipient address rejected",
		"invalid mailbox", "not a valid mailbox", "unknown or illegal alias", "unrouteable address", "address unknown", "unknown address",
		"address rejected", "destinataire invalide", "bad destination mailbox", "account not found", "no longer on server", "no such address",
		"utente sconosciuto", "usuario desconocido",
	}},
	{QuotaIssues, []string{
		"over quota", "overquota", "over-quota", "quota exceeded", "exceeded quota", "quota limit", "mailbox full", "mailbox is full",
		"inbox is full", "account is full", "pleine", "out of storage", "exceeded storage", "storage allocation", "storage limit",
	}},
	{InactiveMailbox, []string{
		"mailbox disabled", "mailbox is disabled", "account disabled", "account is disabled", "account has been disabled",
		"account that you tried to reach is disabled", "inactive", "no longer valid", "deactivated", "account is bloque", "account isblocked",
		"suspended", "discontinued", "archived recipient", "user is locked",
	}},
	{MessageRefused, []string{"too large", "too big", "message size", "size limit", "maximum size", "taille limite"}},
	{TooManyRecipients, []string{"too many recipients", "too many rcpt"}},
	{HostTrouble, []string{
		"temporary system problem", "server busy", "too busy", "system resources", "resources temporarily", "local problem", "local error",
		"system problem", "temporarily unavailable", "temporarily not available", "not accepting network messages", "shutting down", "timeout", "timed out",
		"disk full", "out of memory", "internal error",
	}},
}

func byWords(text string) (Class, bool) {
	for i := range words {
		if has(text, words[i].phrases) {
			return words[i].class, true
		}
	}
	return Uncategorized, false
}

func has(text string, phrases []string) bool {
	for _, phrase := range phrases {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}
