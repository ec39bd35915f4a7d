package inbox

import (
	"context"
	"fmt"

	"example.org/mta/bounce/report"
	"example.org/mta/bounce/returnpath"
)

// Handed is a report whose token another node has made. That node has the records of the message, and remembers which
// reports came before, wherever they came: so it takes the report as if it had been brought there. The token was read
// from the address or the report, and is genuine.
type Handed struct {
	Mail    Mail // of its content what report.Read reads
	Purpose report.Purpose
	Token   returnpath.Token
	About   About
}

// TakeHanded takes a report that another node was brought. It returns when all that follows is durable, and then what
// became of the report: Kept when people have to look at it, which is left to the other node, and "" when this node has
// no records of the message. It hands nothing on.
func (b *Inbox) TakeHanded(ctx context.Context, h *Handed) (Outcome, error) {
	if h.Token.Node != b.cfg.Node {
		return "", nil
	}
	a := &arrival{Inbox: b, Mail: &h.Mail, handed: true, purpose: h.Purpose}
	a.token, a.about = &h.Token, h.About
	a.read()
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

// elsewhere hands the report to the node that sent the message. It returns "" when no node has records of it.
func (a *arrival) elsewhere(ctx context.Context) (Outcome, error) {
	h := &Handed{*a.Mail, a.purpose, *a.token, a.about}
	h.Mail.Content = h.Mail.Content[:min(len(h.Mail.Content), report.MaxSize)]
	outcome, err := a.cfg.Elsewhere(ctx, h)
	if err != nil {
		return "", fmt.Errorf("handing over a report about message %v: %w", a.token.Message, err)
	}
	switch outcome {
	case Kept:
		return a.keep(ctx)
	case "", Recorded, Repeated, Unsubscribed, Own, Ignored:
		return outcome, nil
	}
	return "", fmt.Errorf("a report about message %v was handed over: its outcome %.20q is unknown", a.token.Message,
		outcome)
}
