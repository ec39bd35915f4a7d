package reply

import "testing"

func TestClass(t *testing.T) {
	for _, c := range []struct {
		code                 int
		ok, temporary, final bool
	}{
		{0, false, true, false}, {220, true, false, false}, {250, true, false, false}, {354, true, false, false},
		{421, false, true, false}, {451, false, true, false}, {550, false, false, true}, {599, false, false, true},
	} {
		r := Reply{Code: c.code}
		if r.OK() != c.ok || r.Temporary() != c.temporary || r.Permanent() != c.final {
			t.Errorf("%d: ok %v, temporary %v, permanent %v", c.code, r.OK(), r.Temporary(), r.Permanent())
		}
	}
}

func TestStatusStandsInForAMissingEnhancedCode(t *testing.T) {
	for code, want := range map[int]string{250: "2.0.0", 451: "4.0.0", 0: "4.0.0", 550: "5.0.0"} {
		if got := (Reply{Code: code}).Status().String(); got != want {
			t.Errorf("%d: %s, want %s", code, got, want)
		}
	}
	if got := (Reply{Code: 550, Enhanced: Enhanced{5, 1, 1}}).Status().String(); got != "5.1.1" {
		t.Errorf("the remote's own code became %s", got)
	}
}

func TestText(t *testing.T) {
	r := Reply{Code: 550, Enhanced: Enhanced{5, 1, 1}, Text: "no such user\nsee https://example.com", Command: "RCPT"}
	if got, want := r.String(), "550 5.1.1 no such user / see https://example.com"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := r.Error(), "RCPT: 550 5.1.1 no such user / see https://example.com"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (Reply{Text: "connection refused", Local: true}).String(); got != "connection refused" {
		t.Errorf("got %q", got)
	}
}

func TestParse(t *testing.T) {
	for line, want := range map[string]Reply{
		"550 5.1.1 no such user": {Code: 550, Enhanced: Enhanced{5, 1, 1}, Text: "no such user"},
		"550 no such user":       {Code: 550, Text: "no such user"},
		"550 7.7.1 The IP":       {Code: 550, Text: "7.7.1 The IP"},
		"421 4.7.1000 a b":       {Code: 421, Enhanced: Enhanced{4, 7, 1000}, Text: "a b"},
		"250":                    {},
		"450 4.2.0":              {Code: 450, Enhanced: Enhanced{4, 2, 0}},
	} {
		if got := Parse(line); got != want {
			t.Errorf("%q: %+v, want %+v", line, got, want)
		}
	}
}
