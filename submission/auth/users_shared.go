package auth

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"example.org/mta/submission/shared"
)

// SharedUsers are users that the nodes of a cluster share, by their names: see shared.Store.
type SharedUsers = shared.Store[string, User]

// The users who log in at listeners, and those of the console.
var (
	UserEntries        = userEntries("user", "users", "users file", "mta user")
	ConsoleUserEntries = userEntries("console-user", "console users", "console's users file", "mta console user")
)

func userEntries(kind, what, file, command string) *shared.Entries[string, User] {
	return &shared.Entries[string, User]{
		Kind: kind, What: what, File: file, Command: command,
		ID:   func(u *User) string { return u.Name },
		Name: func(name string) string { return name },
		Parse: func(name string) (string, error) {
			if normal, err := NormalName(name); err != nil || normal != name {
				return "", errors.New("its key is not a user's name")
			}
			return name, nil
		},
		Entry: func(_ string, known shared.Line) (*User, error) { return sharedUser(known) },
		Text:  (*User).String, Change: changedUser,
		Sort: func(_, more []*User) {
			slices.SortFunc(more, func(a, b *User) int { return strings.Compare(a.Name, b.Name) })
		},
	}
}

// sharedUser reads a line. The error has nothing of it, which may be an address.
func sharedUser(known shared.Line) (*User, error) {
	u, err := parseUser(known.Line)
	if err != nil {
		return nil, errors.New("its line of a users file can't be read")
	}
	past := strings.Fields(known.Past)
	u.same = past[len(past)-max(0, min(known.Same, len(past))):]
	return u, nil
}

// keptHashes are the replaced hashes of a user that are known by their sums.
const keptHashes = 16

// changedUser keeps what hashes a user has had: an older file that is put back does not bring a password back.
func changedUser(was shared.Line, u *User, filed bool) (is shared.Line) {
	old, _ := sharedUser(shared.Line{Line: cmp.Or(was.Line, was.Dropped)}) // nil: not known
	past, same := strings.Fields(was.Past), 0
	if u != nil && old != nil && filed && slices.Contains(past, hashSum(u.Hash.String())) {
		again := *u
		again.Hash = old.Hash
		u = &again
	}
	switch {
	case old == nil || old.Hash.Scheme == "":
	case u != nil && u.Hash.String() == old.Hash.String():
		same = was.Same
	default:
		sum := hashSum(old.Hash.String())
		past = append(slices.DeleteFunc(past, func(s string) bool { return s == sum }), sum)
		if u != nil && slices.Contains(u.same, sum) {
			same = was.Same + 1
		}
	}
	past = past[max(0, len(past)-keptHashes):]
	is.Past, is.Same = strings.Join(past, " "), min(same, len(past))
	if u != nil {
		is.Line = u.String()
	}
	return is
}

// hashSum tells hashes apart, whose salts are by chance.
func hashSum(hash string) string {
	sum := sha256.Sum256([]byte(hash))
	return hex.EncodeToString(sum[:8])
}

// UsersOver reads a users file, which may be missing where others count before it; nil: none do.
func UsersOver(shared *SharedUsers, path string) (*UserTable, error) {
	t, err := LoadUsers(path)
	if shared == nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, err
	}
	var users []*User
	if err == nil {
		users = t.users
	}
	return usersOf(shared.Over(users)), nil
}
