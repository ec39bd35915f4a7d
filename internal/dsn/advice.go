package dsn

import "strings"

// advice is what a sender can do about a failure, by its status without the class (RFC 3463 and
// the registry of RFC 5248), in words for people who do not know the codes. Mail that expired has
// class 4.
var advice = map[string]string{
	"1.1":  "The mailbox does not exist. Check the part of the address before the @.",
	"1.2":  "The domain does not exist. Check the part of the address after the @.",
	"1.3":  "The address is not valid. Check its spelling.",
	"1.6":  "The mailbox has moved without a forwarding address.",
	"1.10": "The domain does not accept mail. Check the part of the address after the @.",
	"2.1":  "The mailbox is disabled or does not accept mail at the moment.",
	"2.2":  "The mailbox is full. Contact the recipient in another way.",
	"2.3":  "The message is too large for this mailbox. Send a smaller one.",
	"3.4":  "The message is too large for the recipient's mail server. Send a smaller one.",
	"4.1":  "The recipient's mail server could not be reached.",
	"4.3":  "The domain's name servers did not answer.",
	"4.4":  "The domain has no mail server. Contact its owner.",
	"4.6":  "The message would loop between mail servers. Contact the domain's owner.",
	"5.3":  "The message has too many recipients. Send it to fewer recipients at a time.",
	"6.3":  "The recipient's mail server does not support the format of this message. Send it as plain text.",
	"6.7":  "The recipient's mail server does not support international addresses. Use another address.",
	"7.1":  "The recipient's mail server does not accept this message, or mail from this sender.",
	"7.20": "The message has no valid DKIM signature. Contact your mail administrator.",
	"7.23": "The sending server is not authorized to send for your domain (SPF). Contact your mail administrator.",
	"7.26": "The message failed authentication (DMARC, SPF or DKIM). Contact your mail administrator.",
}

// advice returns the advice for a recipient, "" if there is none.
func (r *Report) advice(rc Recipient) string {
	if r.Kind != Failed {
		return ""
	}
	_, detail, _ := strings.Cut(r.statusOf(rc), ".")
	return advice[detail]
}
