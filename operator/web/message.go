package web

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// messagePage is a message: what waits of it, and what has become of it so far.
type messagePage struct {
	ID         string
	Queued     bool     // some of its recipients are in the queue
	Item       api.Item // where Queued
	Recipients []messageRecipient
	More       int // recipients in the queue that are not shown
	// Records are those of the log, the newest first, and Older the number of those before.
	Records []*accounting.Record
	Older   int
	Back    string
}

// messageRecipient is a recipient with the reason for which it waits.
type messageRecipient struct {
	api.RecipientStatus
	Because string // one sentence, of the explanation; "": the relay has none
}

// Bounds of what the page of a message shows.
const (
	maxShownRecipients = 100
	maxShownRecords    = 200
)

func message(r *request) (any, error) {
	id, err := r.messageID()
	if err != nil {
		return nil, err
	}
	p := messagePage{ID: id, Back: r.http.URL.Path}
	p.Item, err = api.OpShow.Call(r.ctx, r.relay, api.None{}, id)
	switch {
	case err == nil:
		p.Queued = true
		p.fillRecipients(r)
	case !api.IsNotFound(err):
		return nil, err
	}
	if err := p.fillRecords(r); err != nil {
		return nil, err
	}
	if !p.Queued && len(p.Records) == 0 {
		return nil, api.NotFound(
			"records of mail that has left are kept for a time: see accounting in the configuration",
			"there is no message %s in the queue, and no record of it", id)
	}
	return p, nil
}

// messageID gives the id in the path, in its usual spelling.
func (r *request) messageID() (string, error) {
	id, err := envelope.ParseID(r.path("id"))
	if err != nil {
		return "", api.Invalid("", "%v", err)
	}
	return id.String(), nil
}

// fillRecipients takes the recipients that are in the queue, the first with the relay's explanation. Without one the
// page has the state and the last reply.
func (p *messagePage) fillRecipients(r *request) {
	because := map[string]string{}
	if e, err := api.OpExplain.Call(r.ctx, r.relay, api.ExplainQuery{ID: p.ID}); err == nil && e.Message != nil {
		for _, x := range e.Message.Recipients {
			because[x.Status.Address] = x.Why
		}
	}
	all := p.Item.Recipients
	if len(all) > maxShownRecipients {
		p.More = len(all) - maxShownRecipients
		all = all[:maxShownRecipients]
	}
	for _, rcpt := range all {
		p.Recipients = append(p.Recipients, messageRecipient{rcpt, because[rcpt.Address]})
	}
}

func (p *messagePage) fillRecords(r *request) error {
	err := r.relay.Log(r.ctx, api.LogQuery{ID: p.ID, Last: maxShownRecords + 1}, func(line []byte) error {
		if rec, err := accounting.Parse(line); err == nil { // else it is damaged, and hides no others
			p.Records = append(p.Records, rec)
		}
		return nil
	})
	if damaged := (*api.LogDamaged)(nil); err != nil && !errors.As(err, &damaged) {
		return err
	}
	slices.Reverse(p.Records)
	if len(p.Records) > maxShownRecords {
		p.Records, p.Older = p.Records[:maxShownRecords], 1
	}
	return nil
}

// maxShownContent bounds what is shown of a message's content, in octets.
const maxShownContent = 256 << 10

// errEnough ends the reading of a content that is longer than what is shown.
var errEnough = errors.New("enough")

// limitedWriter takes a little more than what is shown.
type limitedWriter struct{ text bytes.Buffer }

func (l *limitedWriter) Write(text []byte) (int, error) {
	if l.text.Len() > maxShownContent {
		return 0, errEnough
	}
	return l.text.Write(text)
}

// content shows what a message says as text, whatever it is: nothing in it is decoded or rendered. It is read for each
// who looks, so that the audit has all of them.
func (s *Server) content(w http.ResponseWriter, r *request) error {
	id, err := r.messageID()
	if err != nil {
		return err
	}
	var text limitedWriter
	if err := api.OpContent.Copy(r.ctx, r.relay, &text, api.None{}, id); err != nil && !errors.Is(err, errEnough) {
		return err
	}
	shown := text.text.Bytes()[:min(text.text.Len(), maxShownContent)]
	return s.show(w, r, http.StatusOK, "content.html", "live", map[string]any{
		"ID": id, "Text": strings.ReplaceAll(string(shown), "\r\n", "\n"), "Cut": text.text.Len() > maxShownContent})
}

// download sends a message's content as a file.
func (s *Server) download(w http.ResponseWriter, r *request) error {
	id, err := r.messageID()
	if err != nil {
		return err
	}
	out := s.attachment(w, id+".eml")
	return out.end(api.OpContent.Copy(r.ctx, r.relay, out, api.None{}, id))
}

// attachment is a file that the browser saves and never shows. Its header is sent with the first octets, so that an
// error before them is still a page. A large file takes longer than a page may: who takes a part of it in time gets the
// next.
type attachment struct {
	longAnswer
	name  string
	begun bool
}

var _ io.Writer = (*attachment)(nil)

func (s *Server) attachment(w http.ResponseWriter, name string) *attachment {
	return &attachment{longAnswer: newLongAnswer(w, time.Minute), name: name}
}

func (a *attachment) Write(text []byte) (int, error) {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "application/octet-stream")
		a.w.Header().Set("Content-Disposition", `attachment; filename="`+a.name+`"`)
	}
	return a.longAnswer.Write(text)
}
