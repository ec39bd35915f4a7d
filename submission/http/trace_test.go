package http

import (
	"net/http"
	"testing"
)

func TestTraceID(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for value, want := range map[string]string{
		"00-" + id + "-00f067aa0ba902b7-01":                       id,
		" 00-" + id + "-00f067aa0ba902b7-00 ":                     id,
		"cc-" + id + "-00f067aa0ba902b7-01-more":                  id,
		"00-" + id + "-00f067aa0ba902b7-01-more":                  "",
		"ff-" + id + "-00f067aa0ba902b7-01":                       "",
		"00-" + id + "-00f067aa0ba902b7":                          "",
		"00-" + id + "-0000000000000000-01":                       "",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01": "",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": "",
		"00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01":  "",
		"00-zbf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": "",
		"": "", "-": "", "---": "", "00---": "",
	} {
		if got := traceID(http.Header{"Traceparent": {value}}); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
	if got := traceID(http.Header{"Traceparent": {"00-" + id + "-00f067aa0ba902b7-01", "00-" + id + "-00f067aa0ba902b7-01"}}); got != "" {
		t.Errorf("two headers give %q", got)
	}
}
