package inbox

import (
	"context"
	"crypto/sha256"
	"fmt"

	"example.org/mta/bounce/report"
	"example.org/mta/bounce/returnpath"
)

// Handed is a report whose token another node has made. That node has the records of the message, and remembers which
// reports came before, wherever they came: so it takes the report as if it had been brought there. The token was read
// from the address or the report, and is genuine.
type Handed struct {
	Mail    Mail // of its content what report.Read reads, and nothing where the purpose is Unsubscription
	Purpose report.Purpose
	Token   returnpath.Token
	About   About
}

// TakeHanded takes a report that another node was brought. It returns when all that follows is durable, and then what
// became of the report: Kept when people have to look at it, which is left to the other node, and "" when this node has
// no records of the message. It hands nothing on, and counts nothing: the other node does.
func (b *Inbox) TakeHanded(ctx context.Context, h *Handed) (outcome Outcome, err error) {
	if h.Token.Node != b.cfg.Node {
		return "", nil
	}
	a := &arrival{Inbox: b, Mail: &h.Mail, handed: true, purpose: h.Purpose}
	a.token, a.about = &h.Token, h.About
	a.read()
	defer func() { a.log(ctx, outcome, err) }()
	switch err := a.find(ctx); {
	case err != nil || a.message == nil:
		return "", err
	case a.own():
		return Own, nil
	}
	return a.follow(ctx)
}

// matters reports whether anything can follow from the report.
func (a *arrival) matters() bool {
	switch a.result.Kind {
	case report.Bounce, report.Complaint, report.Unsubscribe:
		return true
	case report.Other:
		return a.result.Feedback != nil
	}
	return false
}

// handing is a report that was handed over.
type handing struct {
	token   returnpath.Token
	purpose report.Purpose
	content [sha256.Size]byte // of what was handed over of it
}

// elsewhere hands the report to the node that sent the message. It returns "" when no node has records of it. Strangers
// have genuine tokens, and may bring them as often as they like: what that node has taken is not handed over again, and
// of a mail to u-TOKEN, which each of its recipients has taken apart, no content is.
func (a *arrival) elsewhere(ctx context.Context) (Outcome, error) {
	h := &Handed{*a.Mail, a.purpose, *a.token, a.about}
	h.Mail.Content = h.Mail.Content[:min(len(h.Mail.Content), report.MaxSize)]
	if a.purpose == report.Unsubscription {
		h.Mail.Content = nil
	}
	key := handing{*a.token, a.purpose, sha256.Sum256(h.Mail.Content)}
	outcome, known := a.taken.of(key)
	if !known {
		var err error
		if outcome, err = a.cfg.Elsewhere(ctx, h); err != nil {
			return "", fmt.Errorf("handing over a report about message %v: %w", a.token.Message, err)
		}
	}
	switch outcome {
	case "":
		return "", nil
	case Recorded, Unsubscribed:
		a.taken.note(key, Repeated)
	case Kept, Repeated, Own, Ignored:
		a.taken.note(key, outcome)
	default:
		return "", fmt.Errorf("a report about message %v was handed over: its outcome %.20q is unknown",
			a.token.Message, outcome)
	}
	if outcome == Kept {
		return a.keep(ctx)
	}
	return outcome, nil
}
