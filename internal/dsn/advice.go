package dsn

import "strings"

// advice is what a sender can do about a failure, by its status (RFC 3463 and the registry that
// RFC 5248 made of it), in the words of somebody who does not know the codes. The class is left
// out: mail that expired has class 4.
var advice = map[string]string{
	"1.1":  "There is no such mailbox. Check the part of the address before the @.",
	"1.2":  "There is no such domain. Check the part of the address after the @.",
	"1.3":  "This is not written as an address is. Check it.",
	"1.6":  "The mailbox has moved, and nobody said where to.",
	"1.10": "This domain takes no mail at all. Check the part of the address after the @.",
	"2.1":  "The mailbox is switched off, or takes no mail at present.",
	"2.2":  "The mailbox is full. Its owner has to make room, and has to be told by another way.",
	"2.3":  "The message is larger than this mailbox takes. Send less at a time.",
	"3.4":  "The message is larger than the other side takes. Send less at a time.",
	"4.1":  "The other side did not answer in all that time.",
	"4.3":  "The name servers that know the other side did not answer in all that time.",
	"4.4":  "The domain names no host that could take the mail. Tell its owner.",
	"4.6":  "The mail would go round in circles. Tell the owner of the domain.",
	"5.3":  "The message has too many recipients for the other side. Send it to fewer at a time.",
	"6.3":  "The other side can't take the message in this form. Send it as plain text.",
	"6.7":  "The other side takes no addresses outside of ASCII. Use another address.",
	"7.1":  "The other side does not want this message, or not from here.",
	"7.20": "The other side found no valid signature (DKIM). Tell whoever runs your mail.",
	"7.23": "The other side says that we may not send for your domain (SPF). Tell whoever runs your mail.",
	"7.26": "The other side could not make sure that the message is yours (DMARC). Tell whoever runs your mail.",
}

// advice gives what fits a recipient, "" when there is none.
func (r *Report) advice(rc Recipient) string {
	if r.Kind != Failed {
		return ""
	}
	_, detail, _ := strings.Cut(r.statusOf(rc), ".")
	return advice[detail]
}
