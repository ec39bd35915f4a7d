package compat

import (
	nethttp "net/http"
	"strconv"
	"strings"

	"example.org/mta/submission/auth"
	"example.org/mta/submission/http"
	"example.org/mta/submission/request"
)

// resendService gives the routes of Resend's API, and the form of its errors.
func resendService() ([]http.Route, http.Form) {
	return []http.Route{
		{Method: "POST", Pattern: "/emails", Scope: auth.MaySend, Mail: true, Handle: resendSend},
		{Method: "POST", Pattern: "/emails/batch", Scope: auth.MaySend, Mail: true, Handle: resendSendBatch},
		{Method: "GET", Pattern: "/emails/{id}", Scope: auth.MayRead, Handle: resendGet},
		{Method: "PATCH", Pattern: "/emails/{id}", Scope: auth.MayCancel, Handle: resendUpdate},
		{Method: "POST", Pattern: "/emails/{id}/cancel", Scope: auth.MayCancel, Handle: resendCancel},
	}, http.Form{Path: "/emails", Write: resendError}
}

func resendSend(c *http.Call) error {
	sent, _, err := take(c, func(root *request.Node, x *http.Submission) *translation {
		q, r := resend(root, x.Now)
		return &translation{requests: []*request.Request{q}, reader: *r, place: func(_ int, pointer string) string {
			return resendPlace(pointer)
		}}
	})
	if err != nil {
		return err
	}
	answer := map[string]any{"id": sent.Messages[0].ID}
	var refused []string
	refusals(sent.Messages, func(_ int, why string) { refused = append(refused, why) })
	if len(refused) > 0 {
		answer["refused"] = refused
	}
	return c.JSON(nethttp.StatusOK, answer)
}

// resendFault is an element of a batch that was not sent.
type resendFault struct {
	Index   int    `json:"index"`
	Message string `json:"message"`
}

func resendSendBatch(c *http.Call) error {
	sent, t, err := take(c, func(root *request.Node, x *http.Submission) *translation {
		return resendElements(root, x, c.Request.Header.Get("X-Batch-Validation") == "permissive")
	})
	if err != nil {
		return err
	}
	var faults []resendFault
	for _, f := range t.faults {
		faults = append(faults, resendFault{element(f.Pointer), sentence(f)})
	}
	// Ids stand in the order of the messages: one that was refused has none.
	data := make([]map[string]any, len(sent.Messages))
	for i, m := range sent.Messages {
		data[i] = map[string]any{"id": nil}
		if m.ID != "" {
			data[i]["id"] = m.ID
		}
	}
	refusals(sent.Messages, func(i int, why string) { faults = append(faults, resendFault{t.position(i), why}) })
	answer := map[string]any{"data": data}
	if len(faults) > 0 {
		answer["errors"] = faults
	}
	return c.JSON(nethttp.StatusOK, answer)
}

// resendElements reads the messages of a batch.
func resendElements(root *request.Node, x *http.Submission, permissive bool) *translation {
	t := &translation{permissive: permissive, place: func(i int, pointer string) string {
		return "/" + strconv.Itoa(i) + resendPlace(pointer)
	}}
	if root.Kind != request.Array || root.Len == 0 || root.Len > resendBatch {
		t.fault("", "want an array of messages", "send 1 to "+strconv.Itoa(resendBatch))
		return t
	}
	for n := range root.All() {
		q, r := resend(n, x.Now)
		if len(r.faults) > 0 {
			q = nil
		}
		t.requests = append(t.requests, q)
		t.faults = append(t.faults, r.faults...)
		for _, name := range r.ignored {
			t.ignore(name)
		}
	}
	return t
}

// resendPlace gives Resend's name of a field of POST /v1/messages.
func resendPlace(pointer string) string {
	name, rest, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	if rest != "" {
		rest = "/" + rest
	}
	switch name {
	case "from":
		return "/from"
	case "send_at":
		return "/scheduled_at"
	case "data":
		return "/template/variables" + rest
	case "template":
		return "/template/id"
	case "attachments":
		return "/attachments" + strings.NewReplacer("/name", "/filename", "/type", "/content_type").Replace(rest)
	}
	return pointer
}

// resendNames are Resend's names of errors by their status.
var resendNames = map[int]string{
	nethttp.StatusUnauthorized:          "missing_api_key",
	nethttp.StatusForbidden:             "invalid_access",
	nethttp.StatusNotFound:              "not_found",
	nethttp.StatusMethodNotAllowed:      "method_not_allowed",
	nethttp.StatusRequestEntityTooLarge: "validation_error",
	nethttp.StatusTooManyRequests:       "rate_limit_exceeded",
	nethttp.StatusServiceUnavailable:    "service_unavailable",
}

// resendError writes a problem in Resend's form.
func resendError(c *http.Call, p *http.Problem) {
	status, name := p.Status, resendNames[p.Status]
	message := describe(p)
	switch {
	case len(p.Faults) > 0:
		status, name, message = nethttp.StatusUnprocessableEntity, "validation_error", ""
		for i, f := range p.Faults {
			if i > 0 {
				message += "; "
			}
			message += sentence(f)
		}
	case status == nethttp.StatusUnauthorized && c.Request.Header.Get("Authorization") != "":
		status, name = nethttp.StatusForbidden, "invalid_api_key"
	case p.Reason == "key_reused":
		status, name = nethttp.StatusConflict, "invalid_idempotent_request"
	case p.Reason == "under_way":
		name = "concurrent_idempotent_requests"
	case status == nethttp.StatusConflict: // it is too late
		status, name = nethttp.StatusUnprocessableEntity, "validation_error"
	case name == "" && status < nethttp.StatusInternalServerError:
		name = "validation_error"
	case name == "":
		name = "application_error"
	}
	var refused []string
	refusals(messagesOf(p), func(_ int, why string) { refused = append(refused, why) })
	if len(refused) > 0 {
		message += ": " + strings.Join(refused, "; ")
	}
	c.JSON(status, map[string]any{"statusCode": status, "name": name, "message": message})
}
