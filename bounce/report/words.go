package report

import (
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// Words that are found in subjects and texts, in lower case. Hosts write them in many languages; what is not
// here is known by its structure.

var bounceSubjects = []string{
	"undeliver", "delivery fail", "delivery status", "failure notice", "returned mail", "mail delivery",
	"returned to sender", "non delivery", "non-delivery", "nondelivery", "delivery problem", "delivery error",
	"not delivered", "could not be delivered", "could not send", "couldn't be delivered", "failure delivery",
	"delivery notification", "delivery has failed", "delivery report", "mail system error",
	"message not deliverable", "mail failure", "mail failed", "failed mail", "returning to sender", "rejected mail",
	"delivery unsuccessful", "warning: message", "message delayed", "delayed mail", "mail error",
	"processing error", "transient", "unzustellbar", "nicht zugestellt", "rücksendung", "no entregado",
	"no se ha podido entregar", "non recapitabile", "mancato recapito", "non remis", "échec de la remise",
	"niet bestelbaar", "onbestelbaar", "niet bezorgd", "não entregue", "falha na entrega", "nie można dostarczyć",
	"niedostarczon", "недоставлен", "не доставлен", "ошибка доставки", "退信", "无法投递", "投递失败", "寄信失敗", "配信不能",
	"teslim edilemedi", "nedoručitelné", "user unknown", "mailbox full", "message rejected", "mail rejected",
	"returned email", "return receipt error", "bounce", "エラー", "impossible to deliver", "unable to deliver",
	"error sending", "failed delivery", "mail could not", "permanent delivery", "nondeliverable", "mail refused",
	"message refused", "address change", "notification d'état", "notificación de estado", "probleme de remise",
	"delivery to",
}

var delaySubjects = []string{
	"delay", "warning: could not send", "still trying", "not yet", "verzögert", "temporar", "transient", "deferred",
	"queued",
}

// delayTexts are of notices that delivery goes on.
var delayTexts = []string{
	"not yet been delivered", "has been delayed", "is delayed", "was delayed", "will continue to",
	"attempts will continue", "will keep trying", "will be retried", "still being", "no action is required",
	"not need to resend", "you do not need to", "will retry", "continue trying", "will try again",
	"temporarily delayed", "warning message only", "this is a warning", "could not be delivered for",
	"could not send message for past", "delivery attempts will", "will be attempted", "i'm still trying",
	"not be able to deliver it yet", "being retried", "warning only", "verzögert", "keep on trying",
	"will be returned if", "message delayed", "wird weiterhin versucht", "has not been delivered yet", "retrying",
}

// finalTexts are of notices that it does not.
var finalTexts = []string{
	"giving up", "given up", "gave up", "permanent", "failed after", "not going to try again", "too long",
	"has been returned", "being returned", "was returned", "is returned", "could not be delivered to one or more",
	"did not receive", "retry timeout exceeded", "message expired", "within the allowed", "no longer", "fatal",
	"following address(es) failed", "following addresses failed", "will not be", "undeliverable",
}

// introductions come before the addresses that failed, or on their line.
var introductions = []string{
	"following address", "following recipient", "these recipient", "following user", "following destination",
	"following person", "following people", "following mailbox", "recipients or groups", "recipient(s)",
	"failed address", "failed recipient", "intended recipient", "affected recipient", "bad recipient",
	"invalid recipient", "recipients failed", "undeliverable to", "not deliver", "undeliverable address",
	"unknown user", "user unknown", "no such user", "not reach", "be reached", "invalid user", "failure reason",
	"list of recipients", "delivery failed", "delivery to", "failed to deliver", "can't deliver",
	"couldn't deliver", "able to deliver", "not a valid", "your message was addressed", "couldn't be delivered",
	"wasn't delivered", "not been delivered", "not yet been delivered", "not accepted for", "not be delivered",
	"transient non-fatal", "transient error", "fatal errors", "your message to", "your mail to", "your email to",
	"error-for:", "user mailbox", "delivery userid", "address which failed", "addressed to", "had delivery",
	"rejected by", "was rejected", "recipient address", "no mailbox", "does not exist", "doesn't exist",
	"mailbox is full", "quota", "over disk", "has been disabled", "returned mail", "rcpt to", "unrecogni",
	"not recognized", "not found", "invalid address", "bad address", "no longer valid", "no account",
	"error sending", "error transmitting", "trying to reach", "unable to send", "message has been delayed",
	"delayed to", "delivery delayed", "nicht zugestellt", "nicht zustell", "folgende adresse", "folgenden empf",
	"empfänger", "no pudo ser entregado", "no se pudo entregar", "no se ha podido", "nao pode ser", "não pôde ser",
	"não pode ser", "destinatário", "destinatario", "n'a pas pu", "n'a pu", "destinataire", "non è stato possibile",
	"impossibile recapitare", "nie mogła", "nie może", "nie można", "adresat", "не может быть", "не доставлено",
	"не удалось", "невозможно доставить", "адрес", "无法", "收件人", "未能", "退信", "無法", "配信できません", "配送できません", "宛先",
	"届きません", "送信できません", "niet worden", "kunde inte", "kunne ikke", "teslim edilemedi", "alıcı", "nelze doru",
	"nepodařilo", "kézbesít", "존재하지", "수신자", "발송", "실패",
}

var replySubjects = []string{
	"auto:", "auto reply", "autoreply", "auto-reply", "automatic reply", "automatic response", "automated reply",
	"automated response", "auto response", "auto-response", "autoresponse", "autoresponder", "autosvar",
	"out of office", "out of the office", "out-of-office", "away from", "vacation", "abwesenheit",
	"automatische antwort", "automatisch antwoord", "abwesend", "urlaub", "réponse automatique",
	"absence du bureau", "respuesta automática", "fuera de la oficina", "ausente", "risposta automatica",
	"fuori ufficio", "resposta automática", "fora do escritório", "automatyczna odpowied", "nieobecno", "автоответ",
	"自动回复", "自動回覆", "自動返信", "automatické", "automatisk svar", "afwezig", "i am away", "thank you for contacting",
	"thank you for your e-mail", "thank you for your email",
}

var challengeMarks = []string{
	"confirm your message", "confirmation of your message", "please confirm your", "verify your email to",
	"sender verification", "verify that you are", "verification of your email", "confirm that you are a",
	"challenge/response", "challenge-response", "challenge response", "boxbe", "tmda", "spam arrest", "spamarrest",
	"bluebottle", "antispam uol", "requires verification", "verification required",
	"to have your message delivered", "will be delivered after", "hold until", "awaiting your confirmation",
	"awaiting verification", "please verify yourself", "knowspam", "mailblocks", "whitelist", "white list",
	"click on the link below to deliver", "approved senders", "spamblocker", "confirm delivery of your",
	"reply to this message to confirm", "release your message", "sender authentication", "junkemailfilter",
}

// has reports whether a text, in lower case, has one of the words.
func has(text string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// isDaemon reports whether a local part, in lower case, is one that hosts write their reports from.
func isDaemon(local string) bool {
	return has(local, daemons) || local == "root" || local == "smtp" || local == "mmdf" || local == "imss"
}

var daemons = []string{
	"daemon", "postmaster", "post_master", "post-master", "postoffice", "mailsystem", "mail-administrator",
	"microsoftexchange", "bounce-notification",
}

// challengeReplies are of hosts that challenge the sender by a delivery status.
var challengeReplies = []string{"sender not pre-approved", "follow instructions in above"}

var surelyDelayed = []string{
	"not yet been delivered", "warning message only", "no action is required", "not need to resend",
	"will continue to", "attempts will continue", "will keep trying", "being retried", "will be retried",
	"still trying", "not yet delivered", "will continue trying", "will try again", "keep on trying",
	"wird weiterhin versucht", "has not been delivered yet", "will be attempted", "warning only", "is delayed",
	"been delayed", "try to deliver",
}

var surelyFinal = []string{
	"giving up", "given up", "gave up", "permanent error", "permanent fatal", "failed permanently",
	"been in the queue too long", "not going to try again", "delivery has failed", "failed addresses",
	"will not be",
}

// helpful come before addresses to turn to for help.
var helpful = []string{
	"contact", "reply to", "please", "questions", "assistance", "help", "write to", "mailto", "e-mail us", "report",
	"from:", "message-id", "forward", "subscribe", "info:", "support", "on behalf",
}

// entryEnds come after an address on the line of a list of those that failed.
var entryEnds = []string{
	":", "...", "(", "-", ",", ";", "on ", "|", "<", "\t", "–", ".", "[", "=", "failed", "reason", "unknown", "user",
	"could not", "mailbox", "was ", "has ", "is ", "does ", "said", "no ", "not ", "smtp", "delay", "unrouteable",
	"retry", "recipient", "host",
}

// announcements are of the returned message, on a line with dashes or the like.
var announcements = []string{
	"original m", "copy of the m", "copy of your m", "copy of message", "returned m", "unsent m", "message text",
	"message header", "text of your message", "headers of the original", "header of the original",
	"message follows", "original email", "begin message", "forwarded message", "undelivered message",
	"mensaje original", "mensagem original", "message original", "messaggio originale", "original-nachricht",
	"originalnachricht", "ursprüngliche nachricht", "исходное", "копия сообщения", "原信件", "原邮件", "原始邮件", "元のメッセージ",
	"oryginalna", "oorspronkelijk", "start of returned", "header of message", "rejected message", "body of message",
	"contents of the message",
}

// openings begin the line that announces the returned message.
var openings = []string{
	"original message follows", "original message as received", "the original message follows",
	"below this line is a copy of the message", "a copy of the original message below this line",
	"message header follows", "unsent message follows", "the header of the original message is following",
	"the text you sent follows", "text of your message follows", "your original message follows",
	"original message header", "original message headers", "the message headers", "here is a copy of the original",
	"original message attached", "copy of your message follows", "original mail follows", "below is a copy of the",
	"headers of your message",
}

// daemonNames are in the From fields of reports.
var daemonNames = []string{"mail delivery", "mailer-daemon", "postmaster", "mail administrator", "system administrator"}

// replyTexts are of vacation notes.
var replyTexts = []string{
	"out of the office", "out of office", "on vacation", "automatic reply", "auto-reply", "autoreply", "nicht im büro",
	"nicht im hause",
}

// challengeDemands are what a challenge wants to be done.
var challengeDemands = []string{"confirm", "verif", "click", "reply to this"}

// complaintSubjects are of complaints without a feedback report.
var complaintSubjects = []string{
	"complaint", "spam report", "abuse report", "[spamcop", "junk mail report", "feedback report",
}

// fromHTML returns the text of a page, a line for each block.
func fromHTML(page string) string {
	var b strings.Builder
	tokens := html.NewTokenizer(strings.NewReader(page))
	hidden := "" // the element whose text is not shown
	for {
		kind := tokens.Next()
		switch kind {
		case html.ErrorToken:
			return b.String()
		case html.TextToken:
			if hidden == "" {
				appendInline(&b, string(tokens.Text()))
			}
			continue
		}
		name, _ := tokens.TagName()
		tag := string(name)
		switch {
		case kind == html.StartTagToken && (tag == "style" || tag == "script" || tag == "title"):
			hidden = tag
		case kind == html.EndTagToken && tag == hidden:
			hidden = ""
		}
		switch tag {
		case "br", "p", "div", "tr", "li", "h1", "h2", "h3", "h4", "table", "ul", "hr", "pre", "blockquote":
			b.WriteByte('\n')
		case "td", "th":
			b.WriteByte(' ')
		}
	}
}

// appendInline adds text whose line breaks mean nothing.
func appendInline(b *strings.Builder, text string) {
	text = html.UnescapeString(text)
	for _, r := range text {
		switch r {
		case '\n', '\r', '\t', '\u00a0':
			r = ' '
		}
		b.WriteRune(r)
	}
}
