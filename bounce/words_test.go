package bounce

import "testing"

// TestWords are replies to RCPT as mail servers word them. What may be about the sender's domain says
// nothing of the recipient.
func TestWords(t *testing.T) {
	for _, x := range []struct {
		want Class
		line string
	}{
		{AuthenticationFailed, "550 5.1.0 192.0.2.222 is not allowed to send from <example.net> per it's SPF Record"},
		{AuthenticationFailed, "550 5.7.1 RESOLVER.RST.AuthRequired; authentication required ##rfc822;neko-nyaan@cat.example.jp"},
		{BadConfiguration, "500 5.3.5 System config error"},
		{BadDomain, "550 5.1.2 <nekochan@libsisimai.org>... Host unknown (Name server: .: host not found)"},
		{BadDomain, "554 The mail could not be delivered to the recipient because the domain is not reachable."},
		{ContentRelated, "550 5.6.0 the headers in this message contain improperly-formatted binary content"},
		{DNSFailure, "550 Domain does not exist"},
		{HostFailure, "452 Insufficient disk space; try again later"},
		{InactiveMailbox, "550 5.0.0 Recipient suspend the service"},
		{InactiveMailbox, "550 5.7.1 <kijitora@example.com>: Recipient address rejected: User kijitora@example.com temporary locked. Please try again later!"},
		{InactiveMailbox, "550 Account Inactive"},
		{InactiveMailbox, "550 Mailbox is frozen"},
		{InactiveMailbox, "550 The domain meangel.net is currently suspended. Try later."},
		{InactiveMailbox, "550 This account has been temporarily suspended"},
		{InvalidRecipient, "550 5.1.0 - Unknown address error 550-'No Such User Here\"' (delivery attempts: 0)"},
		{InvalidRecipient, "550 5.1.6 address neko@cat.cat has been replaced by neko@example.jp"},
		{InvalidRecipient, "550 5.7.1 <x@y.example> not found"},
		{InvalidRecipient, "550 Email address could not be found, or was misspelled"},
		{InvalidRecipient, "550 No account by that name here"},
		{InvalidRecipient, "550 Not a valid recipient"},
		{InvalidRecipient, "550 Recipient address rejected: Invalid User"},
		{InvalidRecipient, "550 There is no one at this address"},
		{InvalidRecipient, "550 User not known"},
		{InvalidRecipient, "550 Utilisateur inconnu !"},
		{InvalidRecipient, "550 no existe ese usuario"},
		{InvalidRecipient, "550 this recipient is not in my validrcptto list"},
		{InvalidRecipient, "550 unknown local part"},
		{InvalidSender, "550 5.1.1 Null sender is not allowed"},
		{InvalidSender, "550 5.1.8 Domain of sender address example.org does not exist"},
		{InvalidSender, "550 Verification failed for <news@acme.example>\nNo Such User Here\nSender verify failed"},
		{InvalidSender, "550 sender address <news@acme.example> does not exist"},
		{MessageExpired, "421 4.4.7 Delivery time expired"},
		{MessageTooLarge, "400 4.2.3 Message too big"},
		{MessageTooLarge, "550 5.3.0 - Other mail system problem #5.3.4 message header size exceeds limit"},
		{NoAnswerFromHost, "550 neko.example.com[192.0.2.2]:25: No route to host"},
		{PolicyRelated, "550 5.1.2 User reject"},
		{PolicyRelated, "550 Helo command rejected: need fully-qualified hostname"},
		{PolicyRelated, "550 Recipient rejected: your host looks bad"},
		{PolicyRelated, "550 Sorry, your envelope recipient has been denied"},
		{PolicyRelated, "550 You have been blocked by the recipient"},
		{PolicyRelated, "570 5.7.7 Email not accepted for policy reasons"},
		{PolicyRelated, "571 No PTR Record found. Reverse DNS required:"},
		{QuotaIssues, "452 4.2.2 Mailbox has exceeded the limit"},
		{QuotaIssues, "550 Disk quota exceeded"},
		{QuotaIssues, "550 save to /mail/spool/q002.kijitora.gol.com/gol.com/22r/cat/n2.nyaan mailbox is full: retry timeout exceeded"},
		{QuotaIssues, "552 account is over quota"},
		{QuotaIssues, "552 mailbox exceeds allowed size"},
		{RateLimited, "451 4.7.1 <smtp.example.jp[192.0.2.3]>: Client host rejected: Please try again slower"},
		{RateLimited, "452 4.3.2 Connection rate limit exceeded"},
		{RelayDenied, "550 5.7.1 Unable to relay for neko@example.com"},
		{RoutingErrors, "550 mail for example.jp loops back to myself"},
		{RoutingErrors, "554 5.4.6 Too many hops"},
		{RoutingErrors, "554 Hop count exceeded - possible mail loop"},
		{SpamBlock, "421 Too many spams from your IP (192.0.2.1), please visit http://postmaster.free.fr/"},
		{SpamBlock, "550 5.7.1 Mail from 192.0.2.1 refused, see http://blackholes.example"},
		{SpamBlock, "550 5.7.1 We're not currently accepting mail from your IP"},
		{SpamBlock, "550 Client host rejected: Abus detecte GU_EIB_02"},
		{SpamBlock, "550 Connections from mx.example.jp (192.0.2.2) are being rejected due to a poor email reputation score."},
		{SpamBlock, "551 Server access forbidden by your IP 192.0.2.2 websites spamcop.net, mailspike.net for removal"},
		{SpamBlock, "554 5.7.1 You are not allowed to connect."},
		{SpamBlock, "554 INVALID IP FOR SENDING MAIL OF DOMAIN amazonses.com [RCPT_TO]"},
		{SpamContent, "550 5.7.9 The message was rejected because it contains prohibited virus or spam content"},
		{SpamContent, "554 5.7.1 Mail Score (59) over MessageScoringUpperLimit (50) - send error reports to postmaster@example.net"},
		{SpamContent, "570 5.7.7 Spam Detected"},
	} {
		if got := Of(withCommand(x.line, "RCPT")); got != x.want {
			t.Errorf("%v, want %v: %s", got, x.want, x.line)
		}
	}
}

// TestAMentionOfTheMailboxIsNoVerdict has replies about us, by their words, that have the status of a missing mailbox
// or speak of one.
func TestAMentionOfTheMailboxIsNoVerdict(t *testing.T) {
	for _, line := range []string{
		"550 5.7.1 Recipient rejected: you are not on the recipient's safe senders list",
		"550 Mailbox unavailable: message refused due to content (spam)",
		"550 5.1.1 No such user: too many bad recipients, blocked",
		"550 No such user here: sending host's HELO name unknown",
		"550 5.1.2 The domain of the sender address does not resolve",
		"550 unrouteable address of sender",
		"550 Sender callout verification failed: 550 No such mailbox",
		"554 Sending address not accepted: address does not exist",
		"550 Invalid mailbox: SMTP AUTH required",
		"550 5.2.2 Sending quota exceeded for your account",
		"552 5.2.2 You have exceeded your sending quota",
		"550 5.2.2 Message quota exceeded for sender acme.example",
		"550 Account disabled: your sender account is disabled",
		"550 5.2.1 The sending account is disabled",
		"550 5.7.1 Mailbox unavailable. The sending IP 192.0.2.1 is found on Abusix RBL",
		"554 no such user; we don't accept bulk mail",
		"550 5.1.1 Domain acme.example not found: can't verify sender",
		"553 5.1.2 invalid HELO domain",
		"550 5.1.2 host unknown (reverse lookup of client failed)",
		"550 5.1.1 Recipient has blocked your address",
		"550 no mailbox by that name accepts mail from dynamic addresses",
		"550 5.1.1 recipient unknown or sending to this recipient requires authentication",
		"550 5.2.1 Account inactive: sender must authenticate",
		"554 5.2.1 Mail rejected: mailbox closed to bulk senders",
		"550 5.1.1 The email account that you tried to reach is over its sending rate",
		"550 5.1.90 Your message can't be sent because you've reached your daily limit for message recipients",
		"550 5.2.121 Recipient's per hour message receive limit from this sender exceeded",
		"550 5.1.0 <news@acme.example>... Sender has no mail exchanger",
		"550 5.1.1 Blocked by urlfilter; address unknown",
		"550 5.1.2 Domain acme.example in From header does not resolve",
		"550 5.1.1 <bob@x.example>: Recipient address rejected: Blocked by SpamAssassin",
		"554 5.7.1 <bob@x.example>: Recipient address rejected: Sender is not on allowlist",
		"550 5.1.1 recipient refuses mail from domains without MX record",
		"550 Requested action not taken: mailbox unavailable invalid DNS MX or A/AAAA resource record",
		"550 5.1.1 Mail to this recipient refused: unencrypted connection, TLS required",
		"550 5.1.1 Mail refused: unsubscribe header missing",
		"550 invalid recipient: this server doesn't accept mail for foreign senders",
		"550 Invalid from address: mailbox does not exist",
		"550 From address does not exist",
		"550 Reply-To mailbox does not exist",
		"550 user unknown (MAIL FROM)",
	} {
		if got := Of(withCommand(line, "RCPT")); got.Hard() || got == InactiveMailbox || got == QuotaIssues {
			t.Errorf("%s: %v", line, got)
		}
	}
}
