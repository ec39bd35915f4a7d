package report

import (
	"slices"
	"strings"
	"testing"
)

const token = "1sjw6rb0ssaa51800003g00ah5czyb8bzth37tar3jg"

// TestTokens: those of the returned header come first, and each is found once.
func TestTokens(t *testing.T) {
	other, third := "1"+strings.Repeat("0", 42), "1"+strings.Repeat("z", 42)
	r := Read([]byte("From: MAILER-DAEMON@grey.example\nTo: b-"+other+"@b.example.com\nSubject: failure notice\n\n"+
		"Your message could not be delivered, <B-"+strings.ToUpper(token)+"@b.example.com>, "+token+"x\n\n--- Original message follows ---\n\n"+
		"Return-Path: <b-"+token+"@b.example.com>\nFrom: shop@example.com\nTo: anna@grey.example\nX-MTA-Token: "+token+"\nList-Unsubscribe: <mailto:u-"+third+"@b.example.com>\n"), Options{})
	if want := []string{token, third, other}; !slices.Equal(r.Tokens, want) {
		t.Errorf("%q, want %q", r.Tokens, want)
	}
}

// TestTokensOfParts: a token is found in a returned header that is a part, folded and encoded.
func TestTokensOfParts(t *testing.T) {
	r := Read([]byte("From: abuse@provider.example\nContent-Type: multipart/report; report-type=feedback-report; boundary=b\n\n--b\nContent-Type: message/feedback-report\n\nFeedback-Type: abuse\n\n"+
		"--b\nContent-Type: message/rfc822\nContent-Transfer-Encoding: quoted-printable\n\nReceived: from a\n by b\nCFBL-Feedback-ID:=\n "+token+"\nTo: =3D?utf-8?q?x?=3D\n\nbody\n"), Options{})
	if !slices.Equal(r.Tokens, []string{token}) || r.Kind != Complaint {
		t.Errorf("%v, %q", r.Kind, r.Tokens)
	}
}

// TestUnnamed: what a bounce says of a recipient that it doesn't name is there for those who know the token.
func TestUnnamed(t *testing.T) {
	r := Read([]byte("From: MAILER-DAEMON@grey.example\nSubject: failure notice\n\nYour message could not be delivered: 552 5.2.2 mailbox full"), Options{})
	if r.Kind != Bounce || len(r.Reports) != 0 || r.Unnamed == nil || r.Unnamed.Reply.Code != 552 || r.Unnamed.Class.String() != "QuotaIssues" {
		t.Errorf("%+v, %+v", r, r.Unnamed)
	}
}

// TestPurpose: what an address is for decides when nothing else does.
func TestPurpose(t *testing.T) {
	const (
		forwarded = "From: anna@grey.example\nSubject: Fwd: Delivery status of your vacation\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: message/rfc822\n\nFrom: shop@example.com\nTo: anna@grey.example\n\n--b--\n"
		refusal   = "Return-Path: <>\nFrom: MAILER-DAEMON@grey.example\nSubject: failure notice\n\n<anna@grey.example>: 550 no such user\n"
		vacation  = "From: anna@grey.example\nAuto-Submitted: auto-replied\nSubject: Re: x\n\nI'm away\n"
		dsn       = "From: MAILER-DAEMON@grey.example\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\n\n--b\nContent-Type: message/rfc822\n\nContent-Type: multipart/report; report-type=delivery-status\n\n--b--\n"
		request   = "From: anna@grey.example\nSubject: Re: vacation, delivery failed\n\nStop it.\n"
	)
	for _, c := range []struct {
		content string
		purpose Purpose
		want    Kind
	}{
		{forwarded, Complaints, Complaint},
		{request, Unsubscription, Unsubscribe},
		{refusal, Complaints, Bounce},
		{refusal, Unsubscription, Unsubscribe},
		{vacation, Unsubscription, Unsubscribe},
		{dsn, Unsubscription, Unsubscribe},
		{vacation, AnyReport, AutoReply},
		{vacation, Complaints, AutoReply},
		{request, Complaints, Other},
		{"Subject: unsubscribe\n\n", AnyReport, Unsubscribe},
	} {
		if got := Read([]byte(c.content), Options{Purpose: c.purpose}).Kind; got != c.want {
			t.Errorf("%q for %d: %v, want %v", c.content[:60], c.purpose, got, c.want)
		}
	}
}

// TestHarmless: what a stranger wrote breaks no line.
func TestHarmless(t *testing.T) {
	r := Read([]byte("From: MAILER-DAEMON@\x1b[31mgrey.example\nSubject: a\x07\r\nX-Failed-Recipients: \"a\u202e\x1b]0;\"@b.example\n\n<anna@grey.example>:\n 550 5.1.1 \x1b[2J\u202e\u2028 no\x9b such user\r\n"), Options{})
	if len(r.Reports) == 0 {
		t.Fatalf("%+v", r)
	}
	harmless(t, r)
}

func TestXtext(t *testing.T) {
	for value, want := range map[string]string{
		"rfc822;anna@grey.example":           "anna@grey.example",
		"rfc822; <anna@grey.example> (Anna)": "anna@grey.example",
		"<anna@grey.example>":                "anna@grey.example",
		"rfc822;anna+2Btag+3Dx@grey.example": "anna+tag=x@grey.example",
		"rfc822;anna+40grey.example":         "anna@grey.example",
		"rfc822;anna+40@grey.example":        "anna+40@grey.example",
		`utf-8; \x{E4}nn\x{E4}@grey.example`: "ännä@grey.example",
		`utf-8; a\x{110000}@grey.example`:    `x{110000}@grey.example`,
		"rfc822; \"anna b\"@grey.example":    `"anna b"@grey.example`,
		"rfc822; anna@[192.0.2.1]":           "anna@[192.0.2.1]",
		"rfc822; anna@#grey":                 "anna@#grey",
		"rfc822; anna":                       "",
		"rfc822; undisclosed@":               "",
		"x400; /G=anna/":                     "",
	} {
		if got := recipientOf(value); got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}
