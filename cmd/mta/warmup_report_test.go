package main

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
)

func TestProvidersOwnFigures(t *testing.T) {
	const snds = `192.0.2.20,11/20/2026 8:00 AM,11/20/2026 9:00 PM,14129,14129,13000,GREEN,0.3%,11/20/2026 8:07 AM,11/20/2026 12:03 PM,41,,,
192.0.2.99,11/20/2026 8:00 AM,11/20/2026 9:00 PM,10,10,10,RED,99%,,,0,,,
192.0.2.20,11/21/2026 8:00 AM,11/21/2026 9:00 PM,500,500,500,GREEN,< 0.1%,,,0,mail.example,news@example.com,
`
	fromSNDS := func(rows [][]string) (string, error) {
		all, err := readSNDS(rows, "192.0.2.20")
		return fmt.Sprint(all), err
	}
	fromGoogle := func(rows [][]string) (string, error) {
		all, err := readGoogle(rows)
		return fmt.Sprint(all), err
	}
	for _, c := range []struct {
		text string
		read func([][]string) (string, error)
		want string
	}{
		{snds, fromSNDS, "[{{false <nil>} microsoft 2026-11-20 39 0} {{false <nil>} microsoft 2026-11-21 0 0}]"},
		{"Date,User-reported spam rate\n2026-11-20,0.25%\n2026-11-21,\n20261119,0.001\n", fromGoogle, "[{{false <nil>} google 2026-11-20 0 0.0025} {{false <nil>} google 2026-11-19 0 0.001}]"},
		{"name,date,userReportedSpamRatio\n", fromGoogle, `line 1: a header with "Date" and "Spam rate" is wanted`},
		{"", fromGoogle, `line 1: a header with "Date" and "Spam rate" is wanted`},
		{"Date,Spam rate\nyesterday,0\n", fromGoogle, `line 2: "yesterday" is not a date`},
		{"Date,Spam rate\n2026-11-20,7\n", fromGoogle, `line 2: "7" is not a share of the mail`},
		{"192.0.2.20,x\n", fromSNDS, "line 1: it has 2 columns, SNDS has 14"},
		{strings.Replace(snds, "13000", "-1", 1), fromSNDS, `line 1: "-1" is not a number of recipients`},
	} {
		r := csv.NewReader(strings.NewReader(c.text))
		r.FieldsPerRecord = -1
		rows, err := r.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.read(rows)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}
