package http

import (
	"io"
	"mime"
	"net/http"
	"slices"

	"example.org/mta/submission/auth"
	"example.org/mta/submission/request"
)

// messageRoutes are those that bring messages.
func (s *Server) messageRoutes() []Route {
	if s.desk == nil {
		return nil
	}
	return []Route{{Method: "POST", Pattern: "/v1/messages", Scope: auth.MaySend, Mail: true, Streamed: isRaw,
		Handle: postMessages}}
}

const (
	jsonType = "application/json"
	rawType  = "message/rfc822"
)

func mediaType(r *http.Request) string {
	if r.Header.Get("Content-Type") == jsonType { // as nearly all have it
		return jsonType
	}
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// isRaw reports whether the body is a message as such.
func isRaw(r *http.Request) bool { return mediaType(r) == rawType }

// postMessages takes messages in, in either form.
func postMessages(c *Call) error {
	switch mediaType(c.Request) {
	case jsonType:
		return postJSON(c)
	case rawType:
		return postRaw(c)
	}
	p := Problemf(http.StatusUnsupportedMediaType, "Content-Type: use %s, or %s for a whole message", jsonType, rawType)
	p.Header = http.Header{"Accept-Post": {jsonType + ", " + rawType}}
	return p
}

// postJSON takes in what the body describes.
func postJSON(c *Call) error {
	if c.Request.URL.RawQuery != "" {
		return Problemf(http.StatusBadRequest,
			"there are no query parameters with %s: put the fields into the body", jsonType)
	}
	body, err := c.ReadBody()
	if err != nil {
		return err
	}
	x, err := c.Begin(body)
	if err != nil {
		return err
	}
	defer x.End()
	if x.Earlier == nil {
		q, faults := request.Decode(body, x.Now, x.Limits)
		if q != nil {
			faults = append(faults, x.Check(q)...)
		}
		if len(faults) > 0 {
			return faults
		}
		if x.Earlier, err = x.Send(q); err != nil {
			return err
		}
	}
	return c.sent(x.Earlier)
}

// ReadBody reads the whole body. Its errors are Problems.
func (c *Call) ReadBody() ([]byte, error) {
	b := make([]byte, 0, min(max(c.Request.ContentLength, 0), presized)+1) // one more, to meet the end
	for {
		if len(b) == cap(b) {
			b = slices.Grow(b, cap(b))
		}
		n, err := c.Request.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF: //nolint:errorlint // as io.Reader gives it
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

// presized is how much of a body gets its memory in advance, as its Content-Length says, octets.
const presized = 1 << 20

// postRaw takes in the message in the body, as it comes, with the envelope in the query.
func postRaw(c *Call) error {
	x := c.submission()
	defer x.End()
	q, faults := request.DecodeQuery(c.Request.URL.Query(), x.Now, x.Limits)
	if q != nil {
		faults = append(faults, x.Check(q)...)
	}
	if len(faults) > 0 {
		return faults
	}
	sent, err := x.SendRaw(q, c.Request.Body)
	if err != nil {
		return err
	}
	return c.sent(sent)
}

// sent answers with what became of the messages.
func (c *Call) sent(s *Sent) error {
	if s.Replayed {
		c.Writer.Header().Set("Idempotent-Replayed", "true")
	}
	if s.dry {
		return c.JSON(http.StatusOK, s)
	}
	return c.JSON(http.StatusAccepted, s)
}

// Sent is what became of the messages of a request, in its order.
type Sent struct {
	Messages []SentMessage `json:"messages"`
	Replayed bool          `json:"-"` // the answer is that of an earlier request with the same Idempotency-Key
	dry      bool
}

// The states of messages and recipients in an answer. All but the first two are not in the queue.
const (
	Accepted  = "accepted"
	Scheduled = "scheduled" // accepted, and sent at its time
	Refused   = "refused"   // for the reason that stands beside it; the same request would be refused again
	Failed    = "failed"    // it was the relay's fault, or is over a limit: to be sent again
	DryRun    = "dry_run"   // would be accepted
)

// SentMessage is what became of one message.
type SentMessage struct {
	ID         string          `json:"id,omitempty"`
	Status     string          `json:"status"`
	Detail     string          `json:"detail,omitempty"` // why the message was refused
	Recipients []SentRecipient `json:"recipients"`
	Content    string          `json:"content,omitempty"`        // of a dry run: the message, if it is UTF-8
	Base64     []byte          `json:"content_base64,omitempty"` // of a dry run: the message, if it is not
}

// SentRecipient is what became of one recipient.
type SentRecipient struct {
	Address string `json:"address"`
	Status  string `json:"status"`
	Code    string `json:"code,omitempty"`   // the enhanced status code (RFC 3463) of the refusal
	Detail  string `json:"detail,omitempty"` // the reason of the refusal
}
