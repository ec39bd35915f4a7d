package replyclass

import (
	"regexp"
	"strings"

	"example.org/mta/internal/reply"
)

// mark is how a provider, or a block list, is known by a word or a code that nobody else uses.
type mark struct {
	literal string         // must be in the text, in lower case; it spares most replies the pattern
	pattern *regexp.Regexp // nil: the literal is enough
	class   Class
}

func p(s string) *regexp.Regexp { return regexp.MustCompile(s) }

// marks are looked for in this order.
var marks = []mark{
	// Microsoft: postmaster.live.com, and non-delivery reports in Exchange Online.
	{"(s3", p(`\(s3\d{3}\)`), SpamBlock}, // S3140, S3150: an address, or its network
	{"(s77", p(`\(s77\d\)`), SpamBlock},  // S775: the address's reputation
	{"-00", p(`\b(sc|dy|ou)-00\d`), SpamBlock},
	{"rp-00", p(`\brp-00\d`), RateLimited},
	// Yahoo: senders.yahooinc.com/smtp-error-codes.
	{"[ts", p(`\[tss?\d+\]`), SpamBlock},
	{"[bl", p(`\[bl\d+\]`), SpamBlock},
	{"[ph", p(`\[ph\d+\]`), PolicyRelated},
	{"[gl01]", nil, Greylisted},
	{"max message per connection", nil, HostTrouble},
	// Apple: support.apple.com/102322. It is the recipient who gets too much.
	{"deferred due to excessive volume", p(`messages to \S* ?deferred`), MailboxBusy},
	// Mimecast's words for greylisting.
	{"internal resources are temporarily unavailable", nil, Greylisted},
	// Orange and La Poste: three digits at the end of OFR, LPN or OUK.
	{"_1", p(`\b(ofr|lpn|ouk)\d*_(102|103)\b`), SpamBlock},
	{"_104", p(`\b(ofr|lpn|ouk)\d*_104\b`), TooManyConnections},
	{"_105", p(`\b(ofr|lpn|ouk)\d*_105\b`), RateLimited},
	{"_10", p(`\b(ofr|lpn|ouk)\d*_(108|109)\b`), Unexplained},
	{"_401", p(`\b(ofr|lpn|ouk)\d*_401\b`), AuthenticationFailed},
	{"_4", p(`\b(ofr|lpn|ouk)\d*_(403|405|415)\b`), PolicyRelated},
	{"_41", p(`\b(ofr|lpn|ouk)\d*_(416|418)\b`), InvalidRecipient},
	{"_417", p(`\b(ofr|lpn|ouk)\d*_417\b`), QuotaIssues},
	{"_42", p(`\b(ofr|lpn|ouk)\d*_(420|426)\b`), InactiveMailbox},
	{"_505", p(`\b(ofr|lpn|ouk)\d*_505\b`), HostTrouble},
	{"_5", p(`\b(ofr|lpn|ouk)\d*_(506|513)\b`), SpamContent},
	{"_510", p(`\b(ofr|lpn|ouk)\d*_510\b`), SpamBlock},
	{"ofr_999", nil, SpamBlock},
	// Comcast: postmaster.comcast.net.
	{"bl0", p(`\bbl0\d{2,5}\b`), SpamBlock},
	{"es0000", nil, SpamBlock}, // dynamic address space
	{"rl0", p(`\brl0\d{2,5}\b`), RateLimited},
	// Cox and Charter: a word or a number behind AUP#.
	{"aup#", p(`aup#(cxbl|cdrbl|ipbl)`), SpamBlock},
	{"aup#", p(`aup#(cxcnct)`), TooManyConnections},
	{"aup#", p(`aup#(cxmxrt)`), RateLimited},
	{"aup#", p(`aup#(cxdns)`), PolicyRelated},
	{"aup#", p(`aup#(cxsndr)`), AuthenticationFailed},
	{"aup#", p(`aup#(urlbl)`), SpamContent},
	{"aup#", p(`aup#[a-z]*-(10[0-8]\d|12[0-5]\d)`), SpamBlock},
	{"aup#", p(`aup#[a-z]*-(1[1]\d\d|1500|1520|1560)`), PolicyRelated},
	{"aup#", p(`aup#[a-z]*-(13[0-4]\d)`), TooManyConnections},
	{"aup#", p(`aup#[a-z]*-(13[5-9]\d|14\d\d|1540|1550|1580)`), RateLimited},
	// T-Online: postmaster.t-online.de; the letters at the end name the reason.
	{"rx.t-online.de", p(`^ip=|dialup/transient`), SpamBlock},
	// GMX, WEB.DE, mail.com: postmaster.gmx.net/en/case?c=...
	{"ip address is block", nil, SpamBlock},

	// Lists of links in messages, before those of addresses: they share names.
	{"surbl", nil, SpamContent},
	{"uribl", nil, SpamContent},
	{"dbl", p(`\bdbl\b|/dbl/`), SpamContent},
	// Block lists.
	{"spamhaus", p(`spamhaus\.(org|com|net)|spamhaus('s)? (list|zen|sbl|xbl|pbl|css|block)|(in|on|using|by|listed) spamhaus`), SpamBlock},
	{"barracuda", p(`barracuda(central|networks)?\.(org|com)/(reputation|lookups|q\.cgi)|b\.barracudacentral|bbl\.barracuda|barracuda reputation`), SpamBlock},
	{"cloudmark", p(`csi\.cloudmark|cloudmark\.com/(en/)?(reset|csi)|cloudmark (csi|sender intelligence)`), SpamBlock},
	{"abusix", p(`abusix\.(com|ai|org|zone)|abusix mail intelligence`), SpamBlock},
	{"spamcop.net", nil, SpamBlock},
	{"sorbs.net", nil, SpamBlock},
	{"uceprotect", nil, SpamBlock},
	{"invaluement", nil, SpamBlock},
	{"senderscore", nil, SpamBlock},
	{"mail-abuse.", nil, SpamBlock},
	{"manitu.net", nil, SpamBlock},
	{"mailspike", nil, SpamBlock},
	{"talosintelligence", nil, SpamBlock},
	{"senderbase", nil, SpamBlock},
	{"proofpoint.com", p(`ipcheck\.proofpoint\.com|proofpoint\.com/dnsbl`), SpamBlock},
	{"dnsbl", nil, SpamBlock},
	{"client host", p(`client host .{0,80}blocked`), SpamBlock},
	{"rbl", p(`\b(an|the|our|by|in) rbl\b|\brbl (deny|list|restriction|policy)|is in an rbl`), SpamBlock},
}

// byMark looks for marks, and for the enhanced codes of single providers.
func byMark(r *reply.Reply, text string) (Class, bool) {
	for i := range marks {
		m := &marks[i]
		if strings.Contains(text, m.literal) && (m.pattern == nil || m.pattern.MatchString(text)) {
			return m.class, true
		}
	}
	if e := r.Enhanced; e[1] == 7 { // Exchange Online has codes of three digits
		switch n := e[2]; {
		case n == 511, n == 513, n >= 606 && n <= 649 && r.Permanent(), n >= 850 && n <= 899:
			return SpamBlock, true
		case n >= 500 && n <= 749 && !r.Permanent():
			return RateLimited, true
		case n == 509, n >= 20 && n <= 27, n == 30, n == 32: // RFC 7372, and Google's
			return AuthenticationFailed, true
		case n == 28:
			return SpamBlock, true
		}
	}
	return Uncategorized, false
}
