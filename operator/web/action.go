package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"example.org/mta/operator/api"
)

// action changes something. It is a dry run that counts, a confirmation that takes a reason, and then the
// change; when the count has changed meanwhile, it asks again.
type action struct {
	do   func(*request, api.Intent) (Outcome, error)
	help string // what it does, for the confirmation; one sentence or two
	// final actions can't be undone: their buttons look so, and the confirmation has it.
	final bool
	// form asks for what do needs and the request lacks. Its data is nil when nothing is missing; the template gets
	// asked, with the data in Form.
	form *page
}

// Outcome is what an action did, or in a dry run would do.
type Outcome struct {
	Count int
	Noun  string // of what is counted, as "recipient"; "": nothing is counted
	Lines []string
}

// What the forms of the base add to those of an action.
const (
	confirmParam = "confirm" // stands in the second form
	expectParam  = "expect"  // the count that was confirmed
	reasonParam  = "reason"
	backParam    = "back" // the page to return to
)

var actionParams = []string{confirmParam, expectParam, reasonParam, backParam}

// maxReason bounds a reason, in octets.
const maxReason = 500

// asked is the data of the confirmation and of the result.
type asked struct {
	Title, Help string
	Path        string
	Subject     []field // what the form says, for people
	Fields      []field // the same, to be sent again
	Outcome     Outcome
	Changed     bool // the count is another than was confirmed
	Was         int
	Reason      string
	Back        string
	Form        any
}

// doAction answers the form of an action: with the confirmation, or with the result.
func (s *Server) doAction(w http.ResponseWriter, r *request) error {
	a := r.route.action
	page := s.asked(r)
	if len(page.Reason) > maxReason {
		return api.Invalid("", "the reason has more than %d octets", maxReason)
	}
	if a.form != nil {
		var err error
		if page.Form, err = a.form.data(r); err != nil {
			return err
		} else if page.Form != nil {
			return s.show(w, r, http.StatusOK, a.form.template, "live", page)
		}
	}
	found, err := a.do(r, api.Intent{DryRun: true})
	if err != nil {
		return err
	}
	page.Outcome = found
	expect, err := strconv.Atoi(r.get(expectParam))
	switch {
	case r.get(confirmParam) == "":
		return s.show(w, r, http.StatusOK, "action.html", "ask", page)
	case err != nil:
		return api.Invalid("", "%s: want the count that was confirmed, not %q", expectParam, r.get(expectParam))
	case expect != found.Count:
		page.Changed, page.Was = true, expect
		return s.show(w, r, http.StatusOK, "action.html", "ask", page)
	}
	r.ctx = api.WithReason(r.ctx, page.Reason)
	done, err := a.do(r, api.Intent{Expect: &expect})
	s.views.outdate()
	if e := (*api.Error)(nil); errors.As(err, &e) && e.Status == http.StatusConflict {
		if page.Outcome, err = a.do(r, api.Intent{DryRun: true}); err == nil {
			page.Changed, page.Was = true, expect
			return s.show(w, r, http.StatusOK, "action.html", "ask", page)
		}
	}
	if err != nil {
		return err
	}
	page.Outcome = done
	return s.show(w, r, http.StatusOK, "action.html", "done", page)
}

// asked takes from a form what the confirmation shows and sends again.
func (s *Server) asked(r *request) asked {
	page := asked{Title: r.route.title, Help: r.route.action.text(), Path: r.route.path,
		Reason: strings.TrimSpace(r.get(reasonParam)), Back: s.back(r)}
	for _, name := range r.route.params {
		for _, value := range r.values[name] {
			if value == "" {
				continue
			}
			page.Fields = append(page.Fields, field{name, value})
			if len(page.Subject) < maxSubject {
				page.Subject = append(page.Subject, field{strings.ReplaceAll(name, "_", " "), value})
			}
		}
	}
	return page
}

// text is the help of an action, and whether it can be undone.
func (a *action) text() string {
	if a.final {
		return a.help + " This can't be undone."
	}
	return a.help
}

// maxSubject bounds what the confirmation repeats of the form: one can tick a thousand.
const maxSubject = 20

// back gives the page that somebody came from, or that they named.
func (s *Server) back(r *request) string {
	if to := local(r.get(backParam)); to != "" {
		return r.base + to
	}
	return r.url("/")
}

// local gives a path of the console that a stranger may have named, "" when it is elsewhere.
func local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(to, "/") ||
		strings.HasPrefix(to, "//") || !clean(u) || strings.ContainsAny(to, "\\\r\n\t") {
		return ""
	}
	return to
}
