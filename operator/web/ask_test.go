package web

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"example.org/mta/operator/api"
)

// counted is an action on things whose number is in its hand.
type counted struct {
	count int
	done  []int
	races bool // the count changes between the dry run and the change
}

func (a *counted) do(_ *request, in api.Intent) (Outcome, error) {
	switch {
	case in.DryRun:
		return Outcome{Count: a.count, Noun: "thing"}, nil
	case a.races:
		a.races, a.count = false, a.count+1
		fallthrough
	case *in.Expect != a.count:
		return Outcome{}, &api.Error{Status: http.StatusConflict, Message: "the count has changed"}
	}
	a.done = append(a.done, a.count)
	return Outcome{Count: a.count, Noun: "thing"}, nil
}

// newActing gives a browser of an operator, and an action at /things/drop.
func newActing(t testing.TB) (*browser, *counted) {
	a := &counted{count: 1234}
	drop := route{method: "POST", path: "/things/drop", role: Operator, title: "Drop", params: []string{"name"}, action: &action{do: a.do, help: "They fall."}}
	return newConsoleOf(t, append(slices.Clone(routes), drop), nil).as("otto"), a
}

func TestActionAsksFirst(t *testing.T) {
	b, a := newActing(t)
	ask := b.post("/things/drop", "name", "<x>", "back", "/queue?domain=a.example")
	for _, want := range []string{"They fall.", "1,234 things", `name="expect" value="1234"`, `name="name" value="&lt;x&gt;"`, `name="reason"`, `href="/queue?domain=a.example"`} {
		if !strings.Contains(ask.text, want) {
			t.Errorf("the confirmation lacks %s:\n%s", want, ask.text)
		}
	}
	if len(a.done) > 0 {
		t.Fatal("it was done without a confirmation")
	}
	done := b.post("/things/drop", "name", "<x>", "confirm", "yes", "expect", "1234", "reason", "they are old")
	if done.StatusCode != http.StatusOK || !strings.Contains(done.text, "Done: 1,234 things") || !slices.Equal(a.done, []int{1234}) {
		t.Errorf("%s, %v\n%s", done.Status, a.done, done.text)
	}
}

// TestActionAsksAgain: what was confirmed is what is done, even when it changes at the last moment.
func TestActionAsksAgain(t *testing.T) {
	for name, change := range map[string]func(*counted){"before": func(a *counted) { a.count++ }, "meanwhile": func(a *counted) { a.races = true }} {
		b, a := newActing(t)
		change(a)
		again := b.post("/things/drop", "confirm", "yes", "expect", "1234", "reason", "they are old")
		for _, want := range []string{"it was 1,234, and is 1,235 now", `name="expect" value="1235"`, `value="they are old"`} {
			if !strings.Contains(again.text, want) {
				t.Errorf("%s: the page lacks %s:\n%s", name, want, again.text)
			}
		}
		if len(a.done) > 0 {
			t.Errorf("%s: %v was done", name, a.done)
		}
		if b.post("/things/drop", "confirm", "yes", "expect", "1235"); !slices.Equal(a.done, []int{1235}) {
			t.Errorf("%s: %v was done", name, a.done)
		}
	}
}

func TestActionRefuses(t *testing.T) {
	b, a := newActing(t)
	for _, form := range [][]string{
		{"confirm", "yes"}, {"confirm", "yes", "expect", "many"}, {"nmae", "x"}, {"confirm", "yes", "expect", "1234", "reason", strings.Repeat("x", maxReason+1)},
	} {
		if r := b.post("/things/drop", form...); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%.40v: %s", form, r.Status)
		}
	}
	if r := b.post("/things/drop?name=x"); !strings.Contains(r.text, "Drop") || strings.Contains(r.text, "<dd>x</dd>") {
		t.Error("the query counts beside the form")
	}
	a.count = 0
	if r := b.post("/things/drop"); !strings.Contains(r.text, "Nothing fits") || strings.Contains(r.text, `name="confirm"`) {
		t.Error(r.text)
	}
	if len(a.done) > 0 {
		t.Errorf("%v was done", a.done)
	}
	for _, back := range []string{"//evil.example", "https://evil.example/", "javascript:alert(1)", `/\evil.example`} {
		if r := b.post("/things/drop", "back", back); strings.Contains(r.text, "evil") || strings.Contains(r.text, "alert(1)") {
			t.Errorf("%s leads elsewhere", back)
		}
	}
}

func FuzzForms(f *testing.F) {
	f.Add("name=x&confirm=yes&expect=1&reason=%ff&back=/%5cx")
	f.Add("%zz&=&confirm")
	b, a := newActing(f)
	f.Fuzz(func(t *testing.T, form string) {
		a.done = nil
		if r := b.do("POST", "/things/drop", form); r.StatusCode != http.StatusOK && r.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s", form, r.Status)
		}
		if len(a.done) > 0 && !strings.Contains(form, "1234") {
			t.Errorf("%q did it", form)
		}
	})
}
