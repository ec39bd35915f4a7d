// Package client submits mail to an mta relay by HTTP, and hears what became of it. It needs the standard library
// alone.
//
//	c := client.Client{URL: "https://relay.example.com", Key: os.Getenv("MTA_KEY")}
//	sent, err := c.Send(ctx, &client.Message{
//		From: "Shop <shop@acme.example>", To: []string{"ann@example.com"},
//		Subject: "Your order", Text: "Thank you.",
//	})
//
// Send tries again until the relay has answered, with an Idempotency-Key that it makes, so that
// whatever is lost on the way, the message is accepted once. When Send has returned without an error the
// message is on the relay's stable storage.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Client is a relay and a key for it. It can be used by many goroutines, and must not be changed then.
type Client struct {
	// URL is the relay's api listener, such as "https://relay.example.com" or "http://127.0.0.1:8080".
	URL string
	// Key is an API key: 'mta key add' prints one.
	Key string
	// HTTP makes the requests. Nil: a client that gives a request two minutes and follows no redirect.
	HTTP *http.Client
	// Patience is how long Send tries again. 0: two minutes; negative: it tries once.
	Patience time.Duration
	// Clear allows http:// to other machines, where the key can be read on the way.
	Clear bool

	sleep func(context.Context, time.Duration) error // nil: time passes; for tests
	now   func() time.Time                           // nil: time.Now
	share func() float64                             // of a wait, 0 to 1; nil: random
}

// Send submits a message, or with Recipients a message for each of them. All fields of the message are
// checked by the relay; what it finds wrong is an [*Error] with [Fault]s.
func (c *Client) Send(ctx context.Context, m *Message) (*Sent, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return c.SendJSON(ctx, body, m.IdempotencyKey)
}

// SendJSON submits a request that is JSON already. Of an empty key it makes one.
func (c *Client) SendJSON(ctx context.Context, body []byte, key string) (*Sent, error) {
	return c.submit(ctx, "", "application/json", body, key)
}

// SendRaw submits a whole message (RFC 5322), byte for byte.
func (c *Client) SendRaw(ctx context.Context, e Envelope, message []byte) (*Sent, error) {
	return c.submit(ctx, "?"+e.query().Encode(), "message/rfc822", message, e.IdempotencyKey)
}

// submit posts until there is an answer that stands.
func (c *Client) submit(ctx context.Context, query, contentType string, body []byte, key string) (*Sent, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if key == "" {
		key = newKey()
	}
	t := c.newTries()
	for {
		header := http.Header{
			"Authorization": {"Bearer " + c.Key}, "Content-Type": {contentType},
			"Idempotency-Key": {quoted(key)}, "Accept": {"application/json, application/problem+json"},
		}
		if t.token != "" {
			header.Set(queueToken, t.token)
		}
		sent, err := c.post(ctx, strings.TrimSuffix(c.URL, "/")+"/v1/messages"+query, header, body)
		if err == nil {
			return sent, nil
		}
		if ctx.Err() != nil || !canHelp(err) || !t.again(ctx, err) {
			return nil, t.last(key, err)
		}
	}
}

// check refuses what would give the key away.
func (c *Client) check() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return fmt.Errorf("%q is not the URL of a relay: write https://relay.example.com", c.URL)
	case u.User != nil || u.RawQuery != "":
		return errors.New("the URL has a password or a query: the key goes into Key")
	case c.Key == "":
		return errors.New("there is no API key: 'mta key add' prints one")
	case u.Scheme == "http" && !c.Clear && !isLoopback(u.Hostname()):
		return fmt.Errorf("the key would cross the network in clear to %s: use https", u.Host)
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// quoted is a string of a structured field (RFC 9651, 3.3.3).
func quoted(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }

// newKey makes an Idempotency-Key of 128 random bits.
func newKey() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x", b)
}

var standard = &http.Client{
	Timeout:       2 * time.Minute, // a question for events may wait for one
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// maxAnswer bounds what is read of an answer: a dry run of 10 MiB gives the message back as JSON.
const maxAnswer = 64 << 20

// post submits once.
func (c *Client) post(ctx context.Context, to string, header http.Header, body []byte) (*Sent, error) {
	answered, answer, err := c.exchange(ctx, http.MethodPost, to, header, body)
	if err != nil {
		return nil, err
	}
	sent := &Sent{Replayed: answered.Get("Idempotent-Replayed") == "true"}
	if err := json.Unmarshal(answer, sent); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return sent, nil
}

// exchange makes one request, and returns the header and the body of an answer that reports no error.
func (c *Client) exchange(ctx context.Context, method, to string, header http.Header,
	body []byte) (http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header = header
	doer := cmp.Or(c.HTTP, standard)
	resp, err := doer.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode != http.StatusAccepted && resp.StatusCode != http.StatusOK {
		return nil, nil, newError(resp, answer)
	}
	return resp.Header, answer, nil
}

// Error is an answer that reports an error (RFC 9457).
type Error struct {
	Status    int           `json:"status"`
	Type      string        `json:"type"`
	Title     string        `json:"title"`
	Detail    string        `json:"detail"`
	Faults    []Fault       `json:"faults"`
	Messages  []SentMessage `json:"messages"` // what was accepted before the error, or refused
	RequestID string        `json:"-"`        // for who looks into the relay's log
	// RetryAfter is the wait that the relay asks for, 0 if it doesn't.
	RetryAfter time.Duration `json:"-"`

	token string
}

// Fault is something wrong with a request.
type Fault struct {
	Pointer string `json:"pointer"` // to the place (RFC 6901)
	Detail  string `json:"detail"`
	Remedy  string `json:"remedy"`
}

// newError reads an answer.
func newError(resp *http.Response, body []byte) *Error {
	e := &Error{}
	if json.Unmarshal(body, e) != nil { // something between us and the relay has answered
		e.Detail = strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), 200)]), ""))
	}
	e.Status, e.RequestID = resp.StatusCode, resp.Header.Get("X-Request-Id")
	e.Title = cmp.Or(e.Title, http.StatusText(e.Status))
	e.RetryAfter, e.token = retryAfter(resp.Header, time.Now()), resp.Header.Get(queueToken)
	return e
}

// Error has the status, the detail and the faults.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", e.Status, e.Title)
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "; %s: %s", f.Pointer, f.Detail)
		if f.Remedy != "" {
			fmt.Fprintf(&b, " (%s)", f.Remedy)
		}
	}
	return b.String()
}

// Temporary reports whether the same request can succeed later: the relay or something before it has
// failure, a limit is reached, or the first request with this key is under way.
func (e *Error) Temporary() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return e.Status >= 500 && e.Status != http.StatusNotImplemented && e.Status != http.StatusHTTPVersionNotSupported
}
