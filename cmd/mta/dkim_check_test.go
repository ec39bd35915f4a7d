package main

import (
	"errors"
	"strings"
	"testing"

	"example.org/mta/internal/dkim"
	"example.org/mta/internal/dnscheck"
)

// What a name server has is judged, and each fault has a remedy.
func TestRecordsAreJudged(t *testing.T) {
	signer, _, err := dkim.Generate(dkim.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	key, err := dkim.NewKey("acme.example", "s", signer)
	if err != nil {
		t.Fatal(err)
	}
	k := dkimKey{Block: "acme", Name: key.Name(), key: key}
	for _, c := range []struct {
		answer    dnscheck.Answer
		want, why string
	}{
		{dnscheck.Answer{Texts: []string{key.Record()}}, "ok", ""},
		{dnscheck.Answer{Texts: []string{"v=spf1 -all", key.Record()}}, "ok", ""},
		{dnscheck.Answer{Texts: []string{key.Record() + "; t=y"}}, "testing", "t=y"},
		{dnscheck.Answer{}, "missing", "no record s._domainkey.acme.example"},
		{dnscheck.Answer{Texts: []string{"v=DKIM1; k=ed25519; p="}}, "wrong", "revokes"},
		{dnscheck.Answer{Texts: []string{"v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="}}, "wrong", "another key"},
		{dnscheck.Answer{Texts: []string{key.Record(), key.Record()}}, "wrong", "2 records"},
		{dnscheck.Answer{Err: errors.New("it answers REFUSED")}, "unknown", "REFUSED"},
	} {
		var row checkedKey
		row.judge(k, c.answer)
		if row.Result != c.want || !strings.Contains(row.Why, c.why) || (row.Remedy == "") != (c.want == "ok") {
			t.Errorf("%+v: %+v, want %s, %q", c.answer, row, c.want, c.why)
		}
	}
}
