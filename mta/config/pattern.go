package config

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/settings"
)

// Pattern is a domain or host name, "*.name" for all names below it, or "*" for all names. It
// is in A-label form and lower case.
type Pattern string

// UnmarshalText reads a pattern and brings it to A-label form.
func (p *Pattern) UnmarshalText(text []byte) error {
	const remedy = `write a name, "*.name" for all names below it, or "*" for all`
	in := string(text)
	name, wide := strings.CutPrefix(in, "*.")
	switch {
	case in == "*":
		*p = "*"
		return nil
	case strings.HasPrefix(in, "["):
		if !isLiteral(in) {
			return settings.Wrong(`write it as "[192.0.2.1]" or "[IPv6:2001:db8::1]"`, "%s is not an address literal",
				settings.Quoted(in))
		}
	case strings.Contains(name, "*"):
		return settings.Wrong(remedy, "%s has a misplaced *", settings.Quoted(in))
	}
	ascii, err := envelope.ToASCII(name)
	if err != nil {
		return settings.Wrong(remedy, "%s is not a domain or host name", settings.Quoted(in))
	}
	if wide {
		ascii = "*." + ascii
	}
	*p = Pattern(ascii)
	return nil
}

// covers reports whether all names of other are names of p.
func (p Pattern) covers(other Pattern) bool {
	below, wide := strings.CutPrefix(string(p), "*")
	return p == other || wide && strings.HasSuffix(string(other), below)
}

// FieldPattern is the name of a header field, or the beginning of names with a "*" after it.
type FieldPattern string

// needed are the fields without which a message is invalid (RFC 5322, 3.6) or can't be read (RFC 2045). Date is added
// where it is missing.
var needed = []string{"From", "MIME-Version", "Content-Type", "Content-Transfer-Encoding"}

// UnmarshalText reads a pattern that leaves the fields that a message needs.
func (p *FieldPattern) UnmarshalText(text []byte) error {
	begin, wide := strings.CutSuffix(string(text), "*")
	if begin == "" && !wide || strings.ContainsFunc(begin, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || r == ':' || r == '*'
	}) {
		return settings.Wrong(`write a name, or "X-Internal-*" for all names that begin so`,
			"%s is not the name of a header field", settings.Quoted(string(text)))
	}
	for _, name := range needed {
		if strings.EqualFold(name, begin) || wide && len(name) > len(begin) &&
			strings.EqualFold(name[:len(begin)], begin) {
			remedy := "leave it out"
			if wide {
				remedy = `write a longer beginning, such as "X-Internal-*"`
			}
			return settings.Wrong(remedy, "%s would remove %s, which messages need", settings.Quoted(string(text)),
				name)
		}
	}
	*p = FieldPattern(text)
	return nil
}

// isLiteral reports whether s is an address literal of RFC 5321, 4.1.3.
func isLiteral(s string) bool {
	if !strings.HasPrefix(s, "[") || !strings.HasSuffix(s, "]") {
		return false
	}
	s = strings.ToLower(s[1 : len(s)-1])
	rest, v6 := strings.CutPrefix(s, "ipv6:")
	a, err := netip.ParseAddr(rest)
	return err == nil && a.Is6() == v6 && a.Zone() == ""
}

// ports of the schemes of a Smarthost.
const (
	portSMTP  = 25
	portSMTPS = 465 // RFC 8314, 7.3
	maxAnswer = 200 // octets; a reply line has up to 512 (RFC 5321, 4.5.3.1.5)
)

// Smarthost is a host to relay through, written as "smtp://host:port", or "smtps://host:port"
// for TLS from the first byte (RFC 8314).
type Smarthost struct {
	Host     string // name in A-label form, or IP address without brackets
	Port     uint16
	Implicit bool // TLS from the first byte
	// Answer is in place of a host: "discard", or "fail" with a reply.
	Answer string
}

// UnmarshalText reads "smtp://host", "smtp://host:port" or the same with smtps; or "discard", or "fail 451 4.3.0 text".
func (s *Smarthost) UnmarshalText(text []byte) error {
	const remedy = `write it as "smtp://host:port", or "smtps://host:port" for TLS from the first byte`
	in := string(text)
	if line, fail := strings.CutPrefix(in, "fail "); fail || in == "discard" {
		r := reply.Parse(line)
		if fail && (r.Code < 400 || r.Code > 599 || line[3] != ' ' || strings.TrimSpace(r.Text) == "" ||
			len(line) > maxAnswer || reply.Printable(line) != line) {
			return settings.Wrong(`write a reply of code 400 to 599, such as "fail 451 4.3.0 try again later"`,
				"%s has no refusal of one line, up to %d octets", settings.Quoted(in), maxAnswer)
		}
		*s = Smarthost{Answer: in}
		return nil
	}
	u, err := url.Parse(in)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Host == "" {
		// The text may hold a password: it is not quoted.
		return settings.Wrong(remedy, "this is not the address of a mail host")
	}
	if u.User != nil {
		return settings.Wrong("put them into the settings username and password of the block",
			"a route must not hold a user name or a password")
	}
	if u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return settings.Wrong(remedy, "%s has more than a host and a port", settings.Quoted(in))
	}
	out := Smarthost{Port: portSMTP, Implicit: u.Scheme == "smtps"}
	if out.Implicit {
		out.Port = portSMTPS
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return settings.Wrong("ports are numbers from 1 to 65535", "%s has an invalid port", settings.Quoted(in))
		}
		out.Port = uint16(n)
	} else if strings.HasSuffix(u.Host, ":") {
		return settings.Wrong(remedy, "%s has a colon but no port", settings.Quoted(in))
	}
	if out.Host, err = hostOrAddress(u.Hostname()); err != nil {
		return settings.Wrong(remedy, "%s has no valid host", settings.Quoted(in))
	}
	*s = out
	return nil
}

func hostOrAddress(s string) (string, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return a.String(), nil
	}
	if strings.ContainsAny(s, ":[]%") {
		return "", settings.Wrong("", "not a host")
	}
	return envelope.ToASCII(s)
}

// String gives the form that is read, with the port.
func (s Smarthost) String() string {
	if s.Answer != "" {
		return s.Answer
	}
	scheme, host := "smtp", s.Host
	if s.Implicit {
		scheme = "smtps"
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return scheme + "://" + host + ":" + strconv.Itoa(int(s.Port))
}
