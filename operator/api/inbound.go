package api

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
)

// InboundMail is mail for the relay itself that it did not understand, and keeps for people.
type InboundMail struct {
	ID         string    `json:"id"`                // its id
	Time       time.Time `json:"time"`              // when it came
	Kind       string    `json:"kind"`              // what it is: other, or unsubscribe when nobody knows who wants that
	Sender     string    `json:"sender"`            // of the envelope; empty for the null sender
	Recipients []string  `json:"recipients"`        // of the envelope
	Peer       string    `json:"peer,omitempty"`    // the IP address of the host that brought it
	Helo       string    `json:"helo,omitempty"`    // what that host calls itself
	Size       int64     `json:"size"`              // octets
	From       string    `json:"from,omitempty"`    // its From field, printable
	Subject    string    `json:"subject,omitempty"` // its Subject field, printable
	Message    string    `json:"message,omitempty"` // the id of the message that it is about, as its token proves
}

// InboundList is a page of kept mail, the newest first.
type InboundList struct {
	Mail    []InboundMail `json:"mail"`           // the newest first
	Kept    int           `json:"kept"`           // how many are kept in all
	Dropped int64         `json:"dropped"`        // how many were deleted since the start of the relay, for space
	Next    string        `json:"next,omitempty"` // after for the next page; absent on the last
}

// Inbound is what the server asks of kept inbound mail.
type Inbound interface {
	// Inbound gives a page. after is InboundList.Next of the page before.
	Inbound(ctx context.Context, after string, limit int) (InboundList, error)
	// InboundMail gives a mail with its content; NotFound when it is there no more.
	InboundMail(ctx context.Context, id string) (InboundMail, []byte, error)
}

func (s *Server) inboundMail(r *http.Request, _ none) (m InboundMail, err error) {
	id, err := pathID(r)
	if err == nil {
		m, _, err = s.config.Inbound.InboundMail(r.Context(), id)
	}
	return m, err
}

func (s *Server) inboundContent(w http.ResponseWriter, r *http.Request, _ none) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	_, content, err := s.config.Inbound.InboundMail(r.Context(), id)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "message/rfc822")
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.Write(content)
	return nil
}

// Inbound gives a page of kept inbound mail.
func (c *Client) Inbound(ctx context.Context, after string, limit int) (InboundList, error) {
	return opInbound.call(ctx, c, Paging{after, limit})
}

// InboundMail gives what is known of a kept mail.
func (c *Client) InboundMail(ctx context.Context, id string) (InboundMail, error) {
	return opInboundMail.call(ctx, c, none{}, id)
}

// InboundContent writes a kept mail's headers and body to w, as they came.
func (c *Client) InboundContent(ctx context.Context, id string, w io.Writer) error {
	return opInboundContent.copy(ctx, c, w, "the content of "+id, none{}, id)
}
