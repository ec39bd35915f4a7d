package sts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Mode says what a sender does about a host that fails a policy (RFC 8461, 5).
type Mode uint8

const (
	None    Mode = iota // nothing: the domain has no policy, or withdraws the one it had
	Testing             // reports it, and delivers all the same
	Enforce             // does not deliver to that host
)

// String gives the word that stands in policies.
func (m Mode) String() string { return [...]string{"none", "testing", "enforce"}[m] }

// MaxMaxAge is the longest lifetime of a policy (RFC 8461, 3.2): a year.
const MaxMaxAge = 31557600 * time.Second

// Policy is what a domain demands of the hosts that its mail is sent to. The zero Policy demands nothing. It is shared
// by all who ask for it: leave it alone.
type Policy struct {
	Mode   Mode
	MX     []string      // patterns, in lower case: a host's name, or one with "*" for its first label
	MaxAge time.Duration // since it was fetched, at most MaxMaxAge
}

// Match reports whether a host, by its name in the MX record, is one of the policy's (RFC 8461, 4.1). The name is in
// A-label form; its case and a final dot don't matter.
func (p *Policy) Match(host string) bool {
	return slices.ContainsFunc(p.MX, func(pattern string) bool { return Match(pattern, host) })
}

// Match reports whether a pattern of a policy, in lower case, is that of a host's name. A "*" stands for the first
// label, and for that only.
func Match(pattern, host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	label, parent, _ := strings.Cut(host, ".")
	base, wild := strings.CutPrefix(pattern, "*.")
	return wild && label != "" && parent == base || pattern == host
}

// same reports whether mail goes by p as by q.
func (p *Policy) same(q *Policy) bool { return p.Mode == q.Mode && slices.Equal(p.MX, q.MX) }

// Lines gives the policy as it would be published, a field each, as reports quote it (RFC 8460, 4.4).
func (p *Policy) Lines() []string {
	lines := []string{"version: STSv1", "mode: " + p.Mode.String()}
	for _, mx := range p.MX {
		lines = append(lines, "mx: "+mx)
	}
	return append(lines, fmt.Sprintf("max_age: %d", p.MaxAge/time.Second))
}

// Parse reads a policy as RFC 8461, 3.2 defines it, line by line and to the letter, except that blank lines are
// ignored: they are common, and a policy that is void protects nobody. Unknown fields are ignored. An error names
// the line.
func Parse(text []byte) (*Policy, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("the policy is not UTF-8")
	}
	var p draft
	for i, line := range lines(string(text)) {
		if line = strings.TrimRight(line, " \t"); line == "" {
			continue
		}
		if err := p.field(line); err != nil {
			return nil, fmt.Errorf("line %d of the policy: %w", i+1, err)
		}
	}
	return p.policy()
}

// lines splits at LF or CRLF. The last line may do without.
func lines(text string) []string {
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range all {
		if i < len(all)-1 || strings.HasSuffix(text, "\n") {
			all[i] = strings.TrimSuffix(line, "\r")
		}
	}
	return all
}

// draft is a policy of which some lines have been read.
type draft struct {
	Policy
	version, mode, maxAge bool // which fields have been there
}

// field reads one line. Of fields that must not be repeated the first counts (RFC 8461, 3.2).
func (p *draft) field(line string) error {
	name, value, found := strings.Cut(line, ":")
	value = strings.TrimLeft(value, " \t")
	switch {
	case !found:
		return errors.New("no colon")
	case !isFieldName(name):
		return errors.New("malformed field name")
	case !isPolicyValue(value):
		return fmt.Errorf("malformed value of %s", name)
	}
	switch {
	case name == "version" && !p.version:
		p.version = true
		if value != "STSv1" {
			return errors.New("version is not STSv1")
		}
	case name == "mode" && !p.mode:
		p.mode = true
		return p.setMode(value)
	case name == "max_age" && !p.maxAge:
		p.maxAge = true
		return p.setMaxAge(value)
	case name == "mx":
		return p.addMX(value)
	}
	return nil
}

func (p *draft) setMode(value string) error {
	for _, m := range [...]Mode{None, Testing, Enforce} {
		if value == m.String() {
			p.Mode = m
			return nil
		}
	}
	return errors.New("mode is not valid (want enforce, testing or none)")
}

func (p *draft) setMaxAge(value string) error {
	if len(value) > 10 || !all(value, func(c byte) bool { return '0' <= c && c <= '9' }) {
		return errors.New("max_age is not a number of 1 to 10 digits")
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return err
	}
	p.MaxAge = lifetime(seconds)
	return nil
}

// lifetime gives a max_age in seconds as a time of at most a year.
func lifetime(n int64) time.Duration {
	const most = int64(MaxMaxAge / time.Second)
	return time.Duration(max(0, min(n, most))) * time.Second
}

func (p *draft) addMX(value string) error {
	if !isDomain(strings.TrimPrefix(value, "*.")) {
		return errors.New("mx is not a host name, with or without a \"*.\" before it")
	}
	p.MX = append(p.MX, strings.ToLower(strings.Clone(value))) // not a part of the whole text, which would stay with it
	return nil
}

// policy gives the policy when all lines have been read.
func (p *draft) policy() (*Policy, error) {
	switch {
	case !p.version:
		return nil, errors.New("the policy has no version")
	case !p.mode:
		return nil, errors.New("the policy has no mode")
	case !p.maxAge:
		return nil, errors.New("the policy has no max_age")
	case len(p.MX) == 0 && p.Mode != None:
		return nil, errors.New("the policy has no mx")
	}
	return &p.Policy, nil
}

// isPolicyValue checks sts-policy-ext-value, which all values are: printable, in UTF-8, no space at the ends.
func isPolicyValue(s string) bool {
	return s != "" && trim(s) == s && all(s, func(c byte) bool { return c >= ' ' && c != 0x7f })
}

// CheckName returns ErrName for what is not a domain that could have a policy.
func CheckName(domain string) error {
	if !isDomain(domain) {
		return fmt.Errorf("%w: %q", ErrName, domain)
	}
	return nil
}

// isDomain checks Domain of RFC 5321, 4.1.2, which leaves internationalized names their A-labels only (RFC 8461, 3.2).
func isDomain(s string) bool {
	if len(s) > 255 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			!all(label, func(c byte) bool { return isAlphanumeric(c) || c == '-' }) {
			return false
		}
	}
	return true
}

// Kind says at which step no policy could be had.
type Kind uint8

const (
	Absent      Kind = iota // the DNS has no record: the domain does without MTA-STS
	DNS                     // the DNS did not answer
	Record                  // the record is malformed, or there are several
	Fetch                   // the web server did not serve a policy
	Certificate             // the web server's certificate is not valid for it
	Invalid                 // what it served is not a policy
	kinds
)

// String gives the word for metrics. The last three are those of TLS reports (RFC 8460, 4.3.2.1) without their prefix.
func (k Kind) String() string {
	return [...]string{"absent", "dns", "record", "policy-fetch-error", "webpki-invalid", "policy-invalid"}[k]
}

// Failure is why a domain's policy could not be had or renewed.
type Failure struct {
	Kind Kind
	At   time.Time
	err  error
}

// Error names the step and the reason.
func (f *Failure) Error() string { return f.err.Error() }

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.err }

// ErrName is for what is not a domain that could have a policy: an address literal, for example.
var ErrName = errors.New("not a domain name")

// ErrClosed is what those get who wait for a policy when Close is called.
var ErrClosed = errors.New("MTA-STS policies are not looked up any more")

// kindOfRecord classifies an error of ParseRecord.
func kindOfRecord(err error) Kind {
	if errors.Is(err, errNoRecord) {
		return Absent
	}
	return Record
}

// kindOfFetch classifies an error of fetch.
func kindOfFetch(err error) Kind {
	var invalid *policyError
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &invalid):
		return Invalid
	case errors.As(err, &untrusted):
		return Certificate
	}
	return Fetch
}

// policyError is an error of Parse.
type policyError struct{ err error }

func (e *policyError) Error() string { return e.err.Error() }
func (e *policyError) Unwrap() error { return e.err }

// timedOut puts a deadline of ours into words.
func timedOut(ctx context.Context, err error, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New(what + ": no answer in time")
	}
	return err
}
