package http

import (
	"encoding/hex"
	"net/http"
	"strings"
)

// traceID returns the trace that a request belongs to, by its traceparent header (W3C Trace Context, 3.2): 32 digits,
// "" without a valid one. Versions to come begin as version 00 does.
func traceID(h http.Header) string {
	values := h.Values("Traceparent")
	if len(values) != 1 {
		return ""
	}
	parts := strings.SplitN(strings.TrimSpace(values[0]), "-", 5)
	if len(parts) < 4 || len(parts) > 4 && parts[0] == "00" || parts[0] == "ff" {
		return ""
	}
	for i, octets := range []int{1, 16, 8, 1} {
		if b, err := hex.DecodeString(parts[i]); err != nil || len(b) != octets ||
			strings.ToLower(parts[i]) != parts[i] {
			return ""
		}
	}
	if strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "" {
		return ""
	}
	return parts[1]
}
