package api_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"example.org/mta/operator/api"
)

func TestHistory(t *testing.T) {
	c := open(t)
	for _, span := range api.Spans {
		for _, of := range api.Subjects {
			names, err := api.OpHistoryNames.Call(t.Context(), c.Client, api.HistoryNamesQuery{Of: of})
			if err != nil || len(names.Rows) == 0 {
				t.Fatalf("names of %s: %+v, %v", of, names, err)
			}
			for _, row := range names.Rows {
				h, err := api.OpHistory.Call(t.Context(), c.Client, api.HistoryQuery{Of: of, Name: row.Name, Span: span})
				if err != nil || h.Of != of || h.Name != row.Name || h.Span != span || h.Step <= 0 || h.Start.IsZero() || len(h.Series) != len(row.Latest) {
					t.Fatalf("%s %q, %s: %+v, %v", of, row.Name, span, h, err)
				}
				for name, s := range h.Series {
					last, rate, delay := s.Values[len(s.Values)-1], strings.HasSuffix(s.Unit, "/s"), strings.HasPrefix(name, "delay_")
					if s.Unit == "" || s.Values[0].Known() || !last.Known() && !delay {
						t.Errorf("%s %q, %s, %s: unit %q, the last of %d values is %v", of, row.Name, span, name, s.Unit, len(s.Values), last)
					}
					// The latest rates are means of a minute, the latest delays are those of the 30 s before.
					if span == api.Last15Minutes && name != "memory" && !rate && !delay && row.Latest[name] != last {
						t.Errorf("%s %q, %s: the latest is %v, want %v", of, row.Name, name, row.Latest[name], last)
					}
				}
			}
		}
	}
	var fault *api.Error
	for q, status := range map[api.HistoryQuery]int{
		{Of: "planet"}: http.StatusBadRequest, {Span: "1y"}: http.StatusBadRequest, {Name: "x"}: http.StatusBadRequest,
		{Of: api.OfSite, Name: "unknown.example"}: http.StatusNotFound,
	} {
		if _, err := api.OpHistory.Call(t.Context(), c.Client, q); !errors.As(err, &fault) || fault.Status != status {
			t.Errorf("%+v: %v, want the status %d", q, err, status)
		}
	}
}
