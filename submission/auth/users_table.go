package auth

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/xdg-go/stringprep"

	"example.org/mta/internal/smallfile"
	"example.org/mta/submission/shared"
)

const (
	maxLine = 64 << 10
	maxName = 255
)

// User is somebody who may log in.
type User struct {
	Name    string // as NormalName gives it
	Hash    Hash
	Tenant  string  // "": nobody's
	Senders Senders // empty: all that the tenant's allow
	// Certificates are those that log the user in: "sha256:" and the fingerprint in hex, or a name
	// that the certificate has.
	Certificates []string
	// Role is what the user may do at the console, one of Roles. "": nothing, as users who submit mail.
	Role string
	// same has the sums of hashes of the same password that this one has replaced at any node of a cluster.
	same []string
}

// Role is what somebody may do at the console. Each includes those before it.
type Role int

// The roles.
const (
	Anyone   Role = iota // not logged in
	Viewer               // sees all but what messages say
	Operator             // acts on the queue, destinations, warm-up and suppression
	Admin                // reads contents and the audit, reloads
)

// Roles are the names of those that users have.
var Roles = []string{"viewer", "operator", "admin"}

// String gives the role's name.
func (r Role) String() string {
	if r < Viewer || r > Admin {
		return "nobody"
	}
	return Roles[r-Viewer]
}

// UserTable is the users at one moment. It is safe for concurrent use while nobody changes it.
//
// A line is a user:
//
//	name:hash:tenant=acme senders=acme.example,news@b.example certificate=sha256:HEX
//	name:hash:role=operator
//
// The hash is a password's as in hash.go, or empty for a user who has none; what follows it may be
// missing. Lines that are blank or begin with # are kept when the file is changed.
type UserTable struct {
	lines  []string
	users  []*User
	line   map[*User]int // from 0
	byName map[string]*User
	byCert map[string]*User
	// shared: of several nodes, each of which may have given a certificate. It is the user's whose name is first.
	shared bool
	twice  string // two users have one, in words
}

func newUserTable(shared bool) *UserTable {
	return &UserTable{line: make(map[*User]int), byName: make(map[string]*User), byCert: make(map[string]*User),
		shared: shared}
}

// usersOf is a table of shared users, without lines.
func usersOf(users []*User) *UserTable {
	t := newUserTable(true)
	for i, u := range users {
		_ = t.claim(u, i) // no two have one name
	}
	return t
}

// ParseUsers reads a users file. path is for messages; an error names every line that is wrong.
func ParseUsers(text []byte, path string) (*UserTable, error) { return parseUsers(text, path, false) }

func parseUsers(text []byte, path string, shared bool) (*UserTable, error) {
	t := newUserTable(shared)
	var problems []error
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Buffer(nil, maxLine)
	for in.Scan() {
		line := in.Text()
		n := len(t.lines)
		t.lines = append(t.lines, line)
		if text := strings.TrimSpace(line); text == "" || text[0] == '#' {
			continue
		}
		u, err := parseUser(line)
		if err == nil {
			err = t.claim(u, n)
		}
		if err != nil && len(problems) < 20 {
			problems = append(problems, fmt.Errorf("%s:%d: %w", path, n+1, err))
		}
	}
	if err := in.Err(); err != nil {
		problems = append(problems, fmt.Errorf("%s:%d: a line has more than %d octets", path, len(t.lines)+1, maxLine))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return t, nil
}

// claim takes a user in, unless another has the name or a certificate.
func (t *UserTable) claim(u *User, line int) error {
	if other := t.byName[u.Name]; other != nil {
		return fmt.Errorf("user %q is in line %d already", u.Name, t.line[other]+1)
	}
	for _, c := range u.Certificates {
		other := t.byCert[c]
		switch {
		case other == nil || other == u:
			t.byCert[c] = u
		case !t.shared:
			return fmt.Errorf("user %q has the same certificate as %q in line %d", u.Name, other.Name, t.line[other]+1)
		default:
			first, second := other, u
			if u.Name < other.Name {
				first, second = u, other
			}
			t.byCert[c] = first
			t.twice = fmt.Sprintf("user %q has the same certificate as %q, whom it logs in: give one of them another",
				second.Name, first.Name)
		}
	}
	t.users, t.line[u], t.byName[u.Name] = append(t.users, u), line, u
	return nil
}

// parseUser reads a line. What it says of a hash never quotes it.
func parseUser(line string) (*User, error) {
	name, rest, ok := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
	if !ok {
		return nil, errors.New(`write it as name:hash; 'mta user add' does`)
	}
	normal, err := NormalName(name)
	if err != nil {
		return nil, err
	}
	hash, attributes, _ := strings.Cut(rest, ":")
	u := &User{Name: normal}
	if u.Hash, err = ParseHash(hash); err != nil {
		return nil, fmt.Errorf("user %q: %w", normal, err)
	}
	if strings.Trim(attributes, ":") == "" { // Dovecot's and Apache's further fields, all empty
		return u, nil
	}
	for word := range strings.FieldsSeq(attributes) {
		if err := u.attribute(word); err != nil {
			return nil, fmt.Errorf("user %q: %w", normal, err)
		}
	}
	return u, nil
}

func (u *User) attribute(word string) error {
	key, value, ok := strings.Cut(word, "=")
	if !ok || value == "" {
		return fmt.Errorf("%q is not of the form name=value; there are tenant, senders, certificate and role", word)
	}
	switch key {
	case "tenant":
		if u.Tenant != "" {
			return errors.New("it has two tenants")
		}
		u.Tenant = value
	case "senders":
		for text := range strings.SplitSeq(value, ",") {
			s, err := ParseSender(text)
			if err != nil {
				return fmt.Errorf("senders: %w", err)
			}
			u.Senders = append(u.Senders, s)
		}
	case "certificate":
		for text := range strings.SplitSeq(value, ",") {
			c, err := NormalCertificate(text)
			if err != nil {
				return err
			}
			u.Certificates = append(u.Certificates, c)
		}
	case "role":
		if !slices.Contains(Roles, value) {
			return fmt.Errorf("%q is not a valid role (want %s)", value, strings.Join(Roles, ", "))
		}
		u.Role = value
	default:
		return fmt.Errorf("unknown attribute %q: there are tenant, senders, certificate and role", key)
	}
	return nil
}

// NormalName gives the form in which names are compared: SASLprep (RFC 4013), lower case.
func NormalName(name string) (string, error) {
	n, err := stringprep.SASLprep.Prepare(name)
	n = strings.ToLower(n)
	switch {
	case err != nil:
		return "", fmt.Errorf("user %q: the name has characters that a user's name can't have (RFC 4013)", name)
	case n == "":
		return "", errors.New("the user's name is empty")
	case len(n) > maxName:
		return "", fmt.Errorf("a user's name has more than %d octets", maxName)
	case n[0] == '#' || strings.ContainsFunc(n, func(r rune) bool {
		return r == ':' || unicode.IsSpace(r) || unicode.IsControl(r)
	}):
		return "", fmt.Errorf("user %q: a name has no colon, no space, and does not begin with #", name)
	}
	return n, nil
}

// NormalCertificate reads what is known of a certificate: "sha256:" and its fingerprint as openssl prints
// it, with colons or without, or a name in it.
func NormalCertificate(text string) (string, error) {
	if hex, ok := cutFold(text, "sha256:"); ok {
		hex = strings.ToLower(strings.ReplaceAll(hex, ":", ""))
		if len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
			return "", fmt.Errorf("%q is not a valid fingerprint of SHA-256 (want 64 hexadecimal digits)", text)
		}
		return "sha256:" + hex, nil
	}
	if text == "" || len(text) > maxName || strings.ContainsFunc(text, func(r rune) bool {
		return r == ',' || unicode.IsSpace(r) || unicode.IsControl(r)
	}) {
		return "", fmt.Errorf("%q is not a valid name of a certificate", text)
	}
	return strings.ToLower(text), nil
}

func cutFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// String gives a user's line of the file.
func (u *User) String() string {
	b := u.Name + ":" + u.Hash.String()
	var attributes []string
	if u.Tenant != "" {
		attributes = append(attributes, "tenant="+u.Tenant)
	}
	if len(u.Senders) > 0 {
		attributes = append(attributes, "senders="+u.Senders.String())
	}
	if len(u.Certificates) > 0 {
		attributes = append(attributes, "certificate="+strings.Join(u.Certificates, ","))
	}
	if u.Role != "" {
		attributes = append(attributes, "role="+u.Role)
	}
	if len(attributes) > 0 {
		b += ":" + strings.Join(attributes, " ")
	}
	return b
}

// Sum is a sum of what the users may do, whatever their order in the file. Passwords are left out: each relay hashes
// them otherwise.
func (t *UserTable) Sum() string {
	var lines []string
	for _, u := range t.users {
		plain := *u
		plain.Hash = Hash{}
		lines = append(lines, plain.String())
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:6])
}

// Users lists all in the order of the file.
func (t *UserTable) Users() []*User { return t.users }

// User finds a user by a name in normal form, nil when there is none.
func (t *UserTable) User(name string) *User { return t.byName[name] }

// ByCertificate finds the user of a certificate in normal form, nil when there is none.
func (t *UserTable) ByCertificate(c string) *User { return t.byCert[c] }

// Put adds a user, or puts it in the place of the one with its name.
func (t *UserTable) Put(u *User) error {
	again, err := parseUser(u.String())
	if err != nil {
		return err
	}
	for _, c := range again.Certificates {
		if other := t.byCert[c]; other != nil && other.Name != again.Name {
			return fmt.Errorf("user %q would have the same certificate as %q", again.Name, other.Name)
		}
	}
	lines := slices.Clone(t.lines)
	if old := t.byName[again.Name]; old != nil {
		lines[t.line[old]] = again.String()
	} else {
		lines = append(lines, again.String())
	}
	return t.replace(lines)
}

// Remove takes a user out, and reports whether there was one.
func (t *UserTable) Remove(name string) bool {
	old := t.byName[name]
	if old == nil {
		return false
	}
	return t.replace(slices.Delete(slices.Clone(t.lines), t.line[old], t.line[old]+1)) == nil
}

// SetHash gives a user another hash. There must be such a user.
func (t *UserTable) SetHash(name string, h Hash) {
	u := t.byName[name]
	u.Hash, u.same = h, nil
	t.lines[t.line[u]] = u.String()
}

// renewHash gives a user another hash of the same password.
func (t *UserTable) renewHash(name string, h Hash) {
	u := t.byName[name]
	same := append(slices.Clone(u.same), hashSum(u.Hash.String()))
	t.SetHash(name, h)
	u.same = same
}

func (t *UserTable) replace(lines []string) error {
	next, err := parseUsers([]byte(strings.Join(lines, "\n")), "users", t.shared)
	if err == nil {
		*t = *next
	}
	return err
}

func (t *UserTable) text() []byte {
	if len(t.lines) == 0 {
		return nil
	}
	return []byte(strings.Join(t.lines, "\n") + "\n")
}

// File is a file of users or of API keys that is changed as a whole: see [smallfile.UpdateSecret].
type File struct {
	Path   string
	DryRun bool // write nothing, but return what would be done, or the error of doing it
	// Keys or Users are changed in the place of the file's; nil, or none without a cluster: the file is.
	Keys  *SharedKeys
	Users *SharedUsers
}

// updateKeys changes the keys.
func (f File) updateKeys(change func(*KeyTable) (*KeyTable, error)) error {
	if !f.Keys.Changed() {
		return update(f, ParseKeys, change)
	}
	err := f.Keys.Update(f.DryRun, func(keys []*Key) ([]*Key, error) {
		table, err := (&KeyTable{shared: true}).change(nil, keys...)
		if err == nil {
			table, err = change(table)
		}
		if err != nil {
			return nil, err
		}
		return table.keys, nil
	})
	if err == nil && !f.DryRun {
		f.Keys.DropRemoved(f.Path, func(gone func(*Key) bool) error {
			return update(f, ParseKeys, func(t *KeyTable) (*KeyTable, error) {
				if !slices.ContainsFunc(t.keys, gone) {
					return nil, shared.ErrNoneRemoved
				}
				return t.change(slices.DeleteFunc(slices.Clone(t.keys), func(k *Key) bool { return !gone(k) }))
			})
		})
	}
	return err
}

// load reads a file.
func load[T any](path string, parse func(text []byte, path string) (T, error)) (t T, err error) {
	text, err := smallfile.ReadSecret(path)
	if err != nil {
		return t, err
	}
	return parse(text, path)
}

// update changes a file.
func update[T interface{ text() []byte }](
	f File, parse func(text []byte, path string) (T, error), change func(T) (T, error),
) error {
	write := smallfile.UpdateSecret
	if f.DryRun {
		write = smallfile.PreviewSecret
	}
	return write(f.Path, func(text []byte) ([]byte, error) {
		t, err := parse(text, f.Path)
		if err == nil {
			t, err = change(t)
		}
		if err != nil {
			return nil, err
		}
		return t.text(), nil
	})
}

// Errors of changes of users.
var (
	ErrUserExists  = errors.New("already exists")
	ErrNoUser      = errors.New("no such user")
	ErrInvalidUser = errors.New("there can be no such user")
)

// ChangeUsers adds users like one ("add"), gives them its password ("password") or removes them ("remove").
func (f File) ChangeUsers(action string, names []string, like User) error {
	return f.UpdateUsers(func(t *UserTable) error {
		for _, name := range names {
			name, err := NormalName(name)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrInvalidUser, err)
			}
			there := t.User(name) != nil
			switch {
			case action == "add" && there:
				return fmt.Errorf("user %q %w", name, ErrUserExists)
			case action == "add":
				u := like
				u.Name = name
				if err := t.Put(&u); err != nil {
					return fmt.Errorf("%w: %w", ErrInvalidUser, err)
				}
			case !there:
				return fmt.Errorf("%w: %q", ErrNoUser, name)
			case action == "password":
				t.SetHash(name, like.Hash)
			default:
				t.Remove(name)
			}
		}
		return nil
	})
}

// LoadUsers reads a users file.
func LoadUsers(path string) (*UserTable, error) { return load(path, ParseUsers) }

// LoadKeys reads a keys file.
func LoadKeys(path string) (*KeyTable, error) { return load(path, ParseKeys) }

// UpdateUsers changes a users file.
func UpdateUsers(path string, change func(*UserTable) error) error {
	return File{Path: path}.UpdateUsers(change)
}

// UpdateUsers changes the file, which is one of users.
func (f File) UpdateUsers(change func(*UserTable) error) error {
	inFile := func(change func(*UserTable) error) error {
		return update(f, ParseUsers, func(t *UserTable) (*UserTable, error) { return t, change(t) })
	}
	if !f.Users.Changed() {
		return inFile(change)
	}
	err := f.Users.Update(f.DryRun, func(users []*User) ([]*User, error) {
		var lines []string
		for i, u := range users {
			own := *u
			users[i], lines = &own, append(lines, u.String())
		}
		t := usersOf(users)
		t.lines = lines
		err := change(t)
		return t.users, err
	})
	if err == nil && !f.DryRun {
		f.Users.DropRemoved(f.Path, func(gone func(*User) bool) error {
			return inFile(func(t *UserTable) error {
				if !slices.ContainsFunc(t.users, gone) {
					return shared.ErrNoneRemoved
				}
				for _, u := range slices.Clone(t.users) {
					if gone(u) {
						t.Remove(u.Name)
					}
				}
				return nil
			})
		})
	}
	return err
}

// AddKey is File.AddKey without a dry run.
func AddKey(path string, k Key, now time.Time) (token string, added *Key, err error) {
	return File{Path: path}.AddKey(k, now)
}
