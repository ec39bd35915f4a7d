package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/smallfile"
)

// Hashes that others have made: openssl passwd -6, crypt(3), the bcrypt of libxcrypt, the argon2 tool's
// and the vector of RFC 7677.
func TestHashesOfOthers(t *testing.T) {
	for _, c := range []struct {
		hash, password string
		scheme         Scheme
	}{
		{"$6$saltsaltsalt$PMWE8DTlam1JU37Piyk43bHcMxTJq6sgu5DKB0/tGPjanN35jcY68QkpDfPFUGPWX5uCxIQkSPzMmqEiVNgts.", "secret", SHA512Crypt},
		{"{SHA512-CRYPT}$6$rounds=10000$abcdefghijklmnop$6QctMxoh6hR78vLc/SVxX1W5gSiammzcZKdjANEs7hkTBmDgTkY4Fa37dUzcj6zGJ59nWEt3rB3ztKoIHQcES.", "secret", SHA512Crypt},
		{"{BLF-CRYPT}$2b$12$oTBVOPueOPQJO3xIGf0WwuPK5V99DwK.GtccTCdii/sc4iLChMupq", "secret", Bcrypt},
		{"$2y$12$oTBVOPueOPQJO3xIGf0WwuPK5V99DwK.GtccTCdii/sc4iLChMupq", "secret", Bcrypt},
		{"{SCRAM-SHA-256}4096,W22ZaJ0SNY7soEsUEjb6gQ==,WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=", "pencil", SchemeSCRAM},
	} {
		h, err := ParseHash(c.hash)
		if err != nil {
			t.Errorf("%s: %v", c.hash, err)
			continue
		}
		if h.Scheme != c.scheme || h.String() != c.hash || !h.Verify(c.password) || h.Verify(c.password+"x") || h.Verify("") {
			t.Errorf("%s: %s, right %v, wrong %v", c.hash, h.Scheme, h.Verify(c.password), h.Verify(c.password+"x"))
		}
	}
}

// Own hashes are read again, and need no renewal; the same password in two forms of Unicode is one.
func TestOwnHashes(t *testing.T) {
	for _, s := range []Scheme{Argon2id, SchemeSCRAM} {
		h, err := NewHash(s, "p\u00e4ss w\u00f6rd")
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseHash(h.String())
		if err != nil || !again.Is(s) || !again.Verify("pa\u0308ss wo\u0308rd") || again.Verify("pass word") {
			t.Errorf("%s: %v", h, err)
		}
		if other, _ := NewHash(s, "p\u00e4ss w\u00f6rd"); other.String() == h.String() {
			t.Errorf("%s: two hashes have one salt", s)
		}
	}
	for _, bad := range []string{"", "a\x00b", strings.Repeat("x", MaxPassword+1), "tab\there"} {
		if _, err := NewHash(Argon2id, bad); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// What costs too much, or can't be read, is refused when the file is, and never quoted.
func TestBadHashes(t *testing.T) {
	for _, c := range []struct{ hash, want string }{
		{"secret", "no known kind"},
		{"$1$abc$def", "no known kind"},
		{"{PLAIN}secret", "no known kind"},
		{"$argon2i$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$c29tZWhhc2g", "no known kind"},
		{"$argon2id$v=19$m=9999999,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "costs too much"},
		{"$argon2id$v=19$m=64,t=0,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "malformed"},
		{"$argon2id$v=19$m=64,t=1,p=1$AA$AA", "malformed"},
		{"$2b$31$oTBVOPueOPQJO3xIGf0WwuPK5V99DwK.GtccTCdii/sc4iLChMupq", "costs too much"},
		{"$2b$12$short", "malformed"},
		{"$6$rounds=999999999$abc$6QctMxoh6hR78vLc/SVxX1W5gSiammzcZKdjANEs7hkTBmDgTkY4Fa37dUzcj6zGJ59nWEt3rB3ztKoIHQcES.", "costs too much"},
		{"$6$abc", "malformed"},
		{"{SCRAM-SHA-256}1,AAAA,AAAA,AAAA", "4096 to"},
		{"{SCRAM-SHA-256}4096,W22ZaJ0SNY7soEsUEjb6gQ==,AAAA,AAAA", "malformed"},
		{strings.Repeat("x", 2000), "longer than"},
	} {
		if _, err := ParseHash(c.hash); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), c.hash) {
			t.Errorf("%s: %v, want %s", c.hash, err, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	table, err := ParseUsers([]byte("# ours\n\nAnn@Acme.Example::tenant=acme senders=Acme.Example,*.b.example,News@c.example certificate=SHA256:"+
		strings.Repeat("AB:", 31)+"AB,App.Example\nbob:\ncarl::::::\n"), "users")
	if err != nil {
		t.Fatal(err)
	}
	ann := table.User("ann@acme.example")
	if ann == nil || ann.Tenant != "acme" || ann.Senders.String() != "acme.example,*.b.example,News@c.example" ||
		table.ByCertificate("sha256:"+strings.Repeat("ab", 32)) != ann || table.ByCertificate("app.example") != ann || len(table.Users()) != 3 {
		t.Errorf("%+v", ann)
	}
	for _, c := range []struct{ text, want string }{
		{"ann", "users:1: write it as name:hash"},
		{"#\n:x", "users:2: the user's name is empty"},
		{"a b:", "has no colon, no space"},
		{"ann:\nANN:", `users:2: user "ann" is in line 1 already`},
		{"ann::certificate=x\nbob::certificate=X", `users:2: user "bob" has the same certificate as "ann" in line 1`},
		{"ann::tenant", "not of the form name=value"},
		{"ann::colour=red", `unknown attribute "colour"`},
		{"ann::senders=a b", "not of the form"},
		{"ann::senders=a..b", "not a valid sender (want a domain or a mail address)"},
		{"ann::senders=@b.example", "not a valid mail address"},
		{"ann::certificate=sha256:ab", "64 hexadecimal digits"},
		{"ann:" + strings.Repeat("x", 70_000), "users:1: a line has more than"},
		{"ann:x\nbob:y", "users:2:"},
	} {
		if _, err := ParseUsers([]byte(c.text), "users"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestSenders(t *testing.T) {
	ss := Senders{"acme.example", "*.b.example", "News@c.example"}
	for address, want := range map[envelope.Address]bool{
		"x@acme.example": true, "x@sub.acme.example": false, "x@b.example": false, "x@a.b.example": true, "x@a.a.b.example": true,
		"x@xb.example": false, "news@c.example": true, "other@c.example": false, "": true, "x@notacme.example": false,
	} {
		if got := ss.Allow(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	if !Senders(nil).Allow("x@any.example") {
		t.Error("an empty list bounds")
	}
}

// Changes keep comments, order, mode; two at a time lose nothing; a file that too many can read is refused.
func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	put := func(name string) error {
		return UpdateUsers(path, func(t *UserTable) error { return t.Put(&User{Name: name, Tenant: "acme"}) })
	}
	if err := put("ann"); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("a new file has mode %v", info.Mode())
	}
	if err := os.WriteFile(path, []byte("# first\nann::tenant=x\n# last\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := UpdateUsers(link, func(t *UserTable) error { return t.Put(&User{Name: fmt.Sprintf("user%d", i)}) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := UpdateUsers(path, func(t *UserTable) error { t.Remove("user7"); return t.Put(&User{Name: "ann", Tenant: "y"}) }); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path)
	info, _ := os.Stat(path)
	if got := string(text); !strings.HasPrefix(got, "# first\nann::tenant=y\n# last\n") || strings.Count(got, "\n") != 22 || strings.Contains(got, "user7:") || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v\n%s", info.Mode(), got)
	}
	failed := errors.New("no")
	if err := UpdateUsers(path, func(t *UserTable) error { t.Remove("ann"); return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if again, _ := os.ReadFile(path); string(again) != string(text) {
		t.Error("a change that failed is in the file")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	var mode *smallfile.ModeError
	if _, err := LoadUsers(path); !errors.As(err, &mode) || mode.Remedy() != "chmod 0640 "+path {
		t.Errorf("a file for all: %v", err)
	}
	if _, err := LoadUsers(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// FuzzParse looks for files that break the parser, or that are read otherwise once they were written.
func FuzzParse(f *testing.F) {
	f.Add([]byte("ann:$6$saltsaltsalt$PMWE8DTlam1JU37Piyk43bHcMxTJq6sgu5DKB0/tGPjanN35jcY68QkpDfPFUGPWX5uCxIQkSPzMmqEiVNgts.:tenant=acme senders=a.example,b@c.example\n"))
	f.Add([]byte("# x\r\n\r\nb:{SCRAM-SHA-256}4096,W22ZaJ0SNY7soEsUEjb6gQ==,WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=\r\n"))
	f.Add([]byte("c::certificate=SHA256:" + strings.Repeat("AB", 32) + ",app.example"))
	f.Add([]byte("d:$argon2id$v=19$m=64,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA::::"))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := ParseUsers(text, "users")
		if err != nil {
			return
		}
		for _, u := range table.Users() {
			again, err := parseUser(u.String())
			if err != nil || again.String() != u.String() {
				t.Fatalf("%q became %q, %v", u, again, err)
			}
			if err := table.Put(u); err != nil {
				t.Fatal(err)
			}
		}
		if again, err := ParseUsers(table.text(), "users"); err != nil || len(again.Users()) != len(table.Users()) {
			t.Fatalf("written and read again: %v", err)
		}
	})
}
