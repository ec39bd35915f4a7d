package auth

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"example.org/mta/internal/network"
)

// header begins a keys file, behind it stands the version of the format. A key is a line:
//
//	SHA256 tenant=acme name=shop scope=send,read from=192.0.2.0/24 created=TIME expires=TIME replaced=TIME
//
// from and expires may be missing; replaced is of a key that a newer one of its name has taken the place of.
// Lines that are blank or begin with # are kept when the file is changed.
const (
	header  = "mta-keys"
	version = 1

	maxKeyLine  = 16 << 10
	maxKeyName  = 64
	maxTenant   = 255
	maxNetworks = 100
	maxProblems = 20
)

// Key is an API key as the file has it: without its token.
type Key struct {
	Sum      KeySum
	Tenant   string
	Name     string
	Scopes   Scopes
	From     []netip.Prefix // where it may be used; none: anywhere
	Created  time.Time
	Expires  time.Time // zero: never
	Replaced time.Time // zero: it is the current one of its name
}

// ID names the key in lists and logs.
func (k *Key) ID() string { return k.Sum.ID() }

// Expired reports whether the key is no longer good.
func (k *Key) Expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// State is what has become of the key: "valid", "replaced" by a newer one and still valid, "expired".
func (k *Key) State(now time.Time) string {
	switch {
	case k.Expired(now):
		return "expired"
	case !k.Replaced.IsZero():
		return "replaced"
	}
	return "valid"
}

// allows reports whether the key may be used from an address.
func (k *Key) allows(a netip.Addr) bool {
	return len(k.From) == 0 || network.Contain(k.From, a.Unmap())
}

// identity gives what the key says about its holder.
func (k *Key) identity() Identity { return Identity{k.ID(), k.Name, k.Tenant, k.Scopes, k.Expires} }

// KeyTable is the keys at one moment. It is safe for concurrent use while nobody changes it.
type KeyTable struct {
	lines   []string
	keys    []*Key
	line    map[*Key]int // from 0
	byID    map[string]*Key
	current map[name]*Key
	shared  bool // of several nodes, each of which may have given a name: the newest key is current
}

// name is what a key is called.
type name struct{ tenant, name string }

// Keys lists all in the order of the file.
func (t *KeyTable) Keys() []*Key { return t.keys }

// Of finds the key of a token, nil when there is none.
func (t *KeyTable) Of(token string) *Key {
	sum := KeySumOf(token)
	if k := t.byID[sum.ID()]; k != nil && k.Sum == sum {
		return k
	}
	return nil
}

// ParseKeys reads a keys file. path is for messages; an error names every line that is wrong, and quotes no
// more of it than a word.
func ParseKeys(text []byte, path string) (*KeyTable, error) { return parseKeys(text, path, false) }

func parseKeys(text []byte, path string, shared bool) (*KeyTable, error) {
	t := &KeyTable{line: make(map[*Key]int), byID: make(map[string]*Key), current: make(map[name]*Key), shared: shared}
	var problems []error
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Buffer(nil, maxKeyLine)
	began := false
	for in.Scan() {
		line := strings.TrimSuffix(in.Text(), "\r")
		n := len(t.lines)
		t.lines = append(t.lines, line)
		if text := strings.TrimSpace(line); text == "" || text[0] == '#' {
			continue
		}
		if !began {
			if err := parseHeader(line); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, n+1, err)
			}
			began = true
			continue
		}
		k, err := parseKey(line)
		if err == nil {
			err = t.claim(k, n)
		}
		if err != nil && len(problems) < maxProblems {
			problems = append(problems,
				fmt.Errorf("%s:%d: %w; correct the line, or remove it and add a key with 'mta key add'",
					path, n+1, err))
		}
	}
	if err := in.Err(); err != nil {
		problems = append(problems,
			fmt.Errorf("%s:%d: a line has more than %d octets; remove it", path, len(t.lines)+1, maxKeyLine))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return t, nil
}

// parseHeader reads the line that says which format the rest has.
func parseHeader(line string) error {
	word, number, _ := strings.Cut(line, " ")
	if word != header {
		return fmt.Errorf("the first line must be %q: is it the right file? 'mta key add' makes one",
			fmt.Sprint(header, " ", version))
	}
	v, err := strconv.Atoi(number)
	switch {
	case err != nil || v < 1:
		return fmt.Errorf("the version of the format is missing; write %q", fmt.Sprint(header, " ", version))
	case v > version:
		return fmt.Errorf(
			"a newer mta wrote this file: its format is version %d, and this mta reads version %d; use the newer "+
				"mta, or add the keys again in another file", v, version)
	}
	return nil
}

// claim takes a key in, unless it is there already.
func (t *KeyTable) claim(k *Key, line int) error {
	called := name{k.Tenant, k.Name}
	if other := t.byID[k.ID()]; other != nil {
		return fmt.Errorf("the same key is in line %d already", t.line[other]+1)
	}
	if k.Replaced.IsZero() {
		other := t.current[called]
		if other != nil && !t.shared {
			return fmt.Errorf("tenant %q has a key %q in line %d already", k.Tenant, k.Name, t.line[other]+1)
		}
		if other == nil || !k.Created.Before(other.Created) {
			t.current[called] = k
		}
	}
	t.keys = append(t.keys, k)
	t.line[k], t.byID[k.ID()] = line, k
	return nil
}

// parseKey reads a line.
func parseKey(line string) (*Key, error) {
	words := strings.Fields(line)
	k := new(Key)
	if sum, err := hex.DecodeString(words[0]); err != nil || len(sum) != len(k.Sum) {
		return nil, errors.New("a key's line begins with the SHA-256 of its token, 64 hexadecimal digits")
	} else {
		copy(k.Sum[:], sum)
	}
	seen := make(map[string]bool)
	for _, word := range words[1:] {
		name, value, ok := strings.Cut(word, "=")
		switch {
		case !ok || value == "":
			return nil, fmt.Errorf("%q is not of the form name=value", shortWord(word))
		case seen[name]:
			return nil, fmt.Errorf("%s is there twice", shortWord(name))
		}
		seen[name] = true
		if err := k.attribute(name, value); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"tenant", "name", "scope", "created"} {
		if !seen[name] {
			return nil, fmt.Errorf("%s is missing", name)
		}
	}
	if !k.Replaced.IsZero() && k.Expires.IsZero() {
		return nil, errors.New("a replaced key must expire: expires is missing")
	}
	return k, nil
}

// shortWord cuts a word for a message.
func shortWord(word string) string {
	if len(word) > 40 {
		return word[:40] + "..."
	}
	return word
}

func (k *Key) attribute(name, value string) (err error) {
	switch name {
	case "tenant":
		if k.Tenant, err = url.PathUnescape(value); err == nil {
			err = CheckKeyTenant(k.Tenant)
		}
	case "name":
		k.Name, err = value, CheckKeyName(value)
	case "scope":
		k.Scopes, err = ParseScopes(strings.Split(value, ","))
	case "from":
		k.From, err = ParseNetworks(strings.Split(value, ","))
	case "created":
		k.Created, err = parseTime(value)
	case "expires":
		k.Expires, err = parseTime(value)
	case "replaced":
		k.Replaced, err = parseTime(value)
	default:
		return fmt.Errorf("unknown attribute %q: there are tenant, name, scope, from, created, expires and replaced",
			shortWord(name))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a valid time (want one such as 2026-11-22T16:00:00Z)",
			shortWord(text))
	}
	return t.UTC(), nil
}

// CheckKeyName returns why a text can't name a key.
func CheckKeyName(name string) error {
	switch {
	case name == "":
		return errors.New("a key's name is empty")
	case len(name) > maxKeyName:
		return fmt.Errorf("a key's name has more than %d octets", maxKeyName)
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@+-") != "" ||
		name[0] == '-':
		return fmt.Errorf("a key's name has letters, digits and . _ @ + - only, and does not begin with -; not %q",
			shortWord(name))
	case strings.HasPrefix(name, KeyPrefix):
		return fmt.Errorf(
			"a key's name does not begin with %s, as the keys themselves do: give the key a name for people", KeyPrefix)
	}
	return nil
}

// CheckKeyTenant returns why a text can't name a tenant.
func CheckKeyTenant(name string) error {
	switch {
	case name == "":
		return errors.New("a key needs a tenant")
	case len(name) > maxTenant:
		return fmt.Errorf("a tenant's name has more than %d octets", maxTenant)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("a tenant's name has control characters or invalid UTF-8")
	}
	return nil
}

// ParseNetworks reads networks and addresses.
func ParseNetworks(texts []string) ([]netip.Prefix, error) {
	if len(texts) > maxNetworks {
		return nil, fmt.Errorf("there are more than %d networks", maxNetworks)
	}
	var list []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if a, aerr := netip.ParseAddr(text); err != nil && aerr == nil && a.Zone() == "" {
			a = a.Unmap()
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is not a valid network (want one such as 192.0.2.0/24)", shortWord(text))
		case p.Addr().Is4In6():
			return nil, fmt.Errorf("%q: write it as an IPv4 network, such as 192.0.2.0/24", shortWord(text))
		case p != p.Masked():
			return nil, fmt.Errorf("%s has bits set behind its length: write %s", p, p.Masked())
		}
		list = append(list, p)
	}
	return list, nil
}

// String gives the key's line of the file.
func (k *Key) String() string {
	b := fmt.Sprintf("%x tenant=%s name=%s scope=%s", k.Sum, url.PathEscape(k.Tenant), k.Name, k.Scopes)
	for i, p := range k.From {
		b += [2]string{" from=", ","}[min(i, 1)] + p.String()
	}
	for _, t := range []struct {
		name string
		time time.Time
	}{{"created", k.Created}, {"expires", k.Expires}, {"replaced", k.Replaced}} {
		if !t.time.IsZero() {
			b += " " + t.name + "=" + t.time.UTC().Format(time.RFC3339)
		}
	}
	return b
}

// change gives the table without some keys and with others, read again so that a key that could not be
// read is never written.
func (t *KeyTable) change(gone []*Key, more ...*Key) (*KeyTable, error) {
	var lines []string
	if !slices.ContainsFunc(t.lines, func(l string) bool { return strings.HasPrefix(l, header+" ") }) {
		lines = append(lines, fmt.Sprint(header, " ", version))
	}
	drop := make(map[int]bool)
	for _, k := range gone {
		drop[t.line[k]] = true
	}
	for i, line := range t.lines {
		if !drop[i] {
			lines = append(lines, line)
		}
	}
	for _, k := range more {
		lines = append(lines, k.String())
	}
	return parseKeys([]byte(strings.Join(lines, "\n")), "keys", t.shared)
}

func (t *KeyTable) text() []byte { return []byte(strings.Join(t.lines, "\n") + "\n") }
