package tlsrpt

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"example.org/mta/internal/envelope"
)

const (
	maxDestinations = 5    // of a domain that get reports
	maxURI          = 2000 // octets of one: it is kept, and stands in the log at each try
)

// ErrNoRecord says that a domain asks for no reports.
var ErrNoRecord = errors.New("no TLS-RPT record")

// ParseRecord gives the destinations in the TXT records of _smtp._tls.DOMAIN, each "mailto:" with an
// address or an "https" URL (RFC 8460, 3). Those of another kind are left out. An error matches
// ErrNoRecord when there is no record, or more than one.
func ParseRecord(texts []string) (destinations []string, err error) {
	var record string
	n := 0
	for _, text := range texts {
		if version, rest, ok := strings.Cut(text, ";"); ok && strings.TrimRight(version, " \t") == "v=TLSRPTv1" {
			record = rest
			n++
		}
	}
	if n != 1 {
		return nil, fmt.Errorf("%w: %d begin with v=TLSRPTv1;", ErrNoRecord, n)
	}
	for field := range strings.SplitSeq(record, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		if strings.TrimRight(name, " \t") != "rua" {
			continue
		}
		for text := range strings.SplitSeq(value, ",") {
			if to, ok := destination(strings.TrimSpace(text)); ok && len(destinations) < maxDestinations {
				destinations = append(destinations, to)
			}
		}
		break // it may be there once
	}
	if len(destinations) == 0 {
		return nil, errors.New("the TLS-RPT record has no rua with a mail address or an https URL")
	}
	return destinations, nil
}

// destination reads a URI of rua.
func destination(text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxURI {
		return "", false
	}
	switch u.Scheme {
	case "mailto":
		address, err := url.PathUnescape(u.Opaque)
		if err != nil {
			return "", false
		}
		a, err := envelope.ParseAddress(address)
		// a literal may be in our network
		if err != nil || a.Null() || !a.ASCII() || strings.HasPrefix(a.Domain(), "[") {
			return "", false
		}
		return "mailto:" + string(a), true
	case "https":
		if u.Hostname() == "" || u.User != nil {
			return "", false
		}
		u.Fragment = ""
		return u.String(), true
	}
	return "", false
}
