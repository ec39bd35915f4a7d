package compat

import (
	"crypto/rand"
	nethttp "net/http"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/submission/auth"
	"example.org/mta/submission/http"
	"example.org/mta/submission/request"
)

// sendGridService gives the routes of SendGrid's API, and the form of its errors.
func sendGridService() ([]http.Route, http.Form) {
	return []http.Route{
		{Method: "POST", Pattern: "/v3/mail/send", Scope: auth.MaySend, Mail: true, Handle: sendGridSend},
		{Method: "POST", Pattern: "/v3/mail/batch", Scope: auth.MaySend, Handle: sendGridBatch},
		{Method: "GET", Pattern: "/v3/mail/batch/{batch}", Scope: auth.MaySend, Handle: sendGridBatchCheck},
		{Method: "POST", Pattern: "/v3/user/scheduled_sends", Scope: auth.MayCancel, Handle: sendGridCancel},
		{Method: "GET", Pattern: "/v3/user/scheduled_sends/{batch}", Scope: auth.MayRead, Handle: sendGridStatus},
		{Method: "PATCH", Pattern: "/v3/user/scheduled_sends/{batch}", Scope: auth.MayCancel, Handle: sendGridUpdate},
		{Method: "DELETE", Pattern: "/v3/user/scheduled_sends/{batch}", Scope: auth.MayCancel, Handle: sendGridRevive},
	}, http.Form{Path: "/v3", Write: sendGridError}
}

func sendGridSend(c *http.Call) error {
	if c.Request.Header.Get("On-Behalf-Of") != "" {
		return http.Problemf(nethttp.StatusBadRequest, "On-Behalf-Of is not supported: use a key of that tenant")
	}
	sent, t, err := take(c, func(root *request.Node, _ *http.Submission) *translation {
		requests, r := sendGrid(root)
		return &translation{requests: requests, reader: *r, place: sendGridPlaces(root, requests)}
	})
	if err != nil {
		return err
	}
	if t.requests[0].DryRun {
		return c.JSON(nethttp.StatusOK, sent)
	}
	for _, m := range sent.Messages {
		if m.ID != "" {
			c.Writer.Header().Set("X-Message-Id", m.ID)
			break
		}
	}
	return c.JSON(nethttp.StatusAccepted, sent)
}

// sendGridPlaces gives SendGrid's names of the fields of POST /v1/messages.
func sendGridPlaces(root *request.Node, requests []*request.Request) func(i int, pointer string) string {
	personalizations := each(root, "personalizations")
	return func(i int, pointer string) string {
		name, rest, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
		if rest != "" {
			rest = "/" + rest
		}
		own := "/personalizations/" + strconv.Itoa(i)
		overrides := func(name string) string { // in the personalization, if it is there
			if at(personalizations[i], name) != nil {
				return own + "/" + name
			}
			return "/" + name
		}
		switch name {
		case "":
			return ""
		case "to", "cc", "bcc":
			return own + "/" + name + rest
		case "from":
			return overrides("from")
		case "reply_to":
			if at(root, "reply_to_list") != nil {
				return "/reply_to_list" + rest
			}
			return "/reply_to"
		case "subject", "send_at":
			return overrides(name)
		case "headers":
			return overrides(name) + rest
		case "meta":
			return overrides("custom_args")
		case "data":
			return own + "/dynamic_template_data"
		case "text", "html":
			return "/content"
		case "attachments":
			return "/attachments" + strings.Replace(rest, "/name", "/filename", 1)
		}
		if other := map[string]string{"campaign": "batch_id", "tags": "categories", "pool": "ip_pool_name",
			"template": "template_id"}[name]; other != "" {
			return "/" + other + rest
		}
		return pointer
	}
}

// sendGridFault is an error as SendGrid's clients show it. Field is null where there is none.
type sendGridFault struct {
	Message string  `json:"message"`
	Field   *string `json:"field"`
	Help    *string `json:"help"`
}

// sendGridError writes a problem in SendGrid's form.
func sendGridError(c *http.Call, p *http.Problem) {
	var errs []sendGridFault
	add := func(message, field, help string) {
		e := sendGridFault{Message: message}
		if field != "" {
			e.Field = &field
		}
		if help != "" {
			e.Help = &help
		}
		errs = append(errs, e)
	}
	for _, f := range p.Faults {
		add(f.Detail, pathOf(f.Pointer), f.Remedy)
	}
	messages := messagesOf(p)
	refusals(messages, func(i int, why string) { add(why, "personalizations."+strconv.Itoa(i), "") })
	if len(errs) == 0 || p.Status >= nethttp.StatusInternalServerError {
		add(describe(p), "", "")
	}
	body := map[string]any{"errors": errs}
	if slices.ContainsFunc(messages, func(m http.SentMessage) bool { return m.ID != "" }) {
		body["messages"] = messages // some were accepted
	}
	if p.Status == nethttp.StatusUnprocessableEntity {
		p.Status = nethttp.StatusBadRequest
	}
	c.JSON(p.Status, body)
}

// The form of a batch's id.
const (
	batchLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // those of rand.Text
	batchLength  = 32
)

// sendGridBatch gives an id for messages that may be cancelled together. It is theirs that use it: the relay
// keeps nothing of it.
func sendGridBatch(c *http.Call) error {
	return c.JSON(nethttp.StatusCreated, map[string]string{"batch_id": (rand.Text() + rand.Text())[:batchLength]})
}

func sendGridBatchCheck(c *http.Call) error {
	id := c.Request.PathValue("batch")
	if !isBatch(id) {
		return http.Problemf(nethttp.StatusBadRequest, "invalid batch id")
	}
	return c.JSON(nethttp.StatusOK, map[string]string{"batch_id": id})
}

// isBatch reports whether an id may be one of sendGridBatch.
func isBatch(id string) bool { return len(id) == batchLength && strings.Trim(id, batchLetters) == "" }
