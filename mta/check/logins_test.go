package check

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/mta/config"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/shared"
)

// TestSignaturesOfUsersWithoutTenant: a user whose senders are limited, and whose From is not, would be signed as from
// another of the operator's domains. mta check warns once for each listener.
func TestSignaturesOfUsersWithoutTenant(t *testing.T) {
	hash, err := auth.NewHash(auth.Argon2id, "secret")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "users")
	lines := fmt.Sprintf("ann:%[1]s:senders=news@b.test\nbob:%[1]s:senders=news@b.test\n", hash)
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	const listener = `users { file = "PATH" }
		listener "out" {
			address = "127.0.0.1:0"
			MORE
			auth {
				mechanisms        = ["PLAIN"]
				clear_on_loopback = true
			}
		}
		tenant "acme" {}
`
	for name, x := range map[string]struct {
		more, blocks string
		want         int
	}{
		"another's":     {"", dkimBlock("a.test", ""), 1},
		"its own":       {"", dkimBlock("b.test", ""), 0},
		"From is held":  {"check_from = true", dkimBlock("a.test", ""), 0},
		"of a tenant":   {`tenant = "acme"`, dkimBlock("a.test", ""), 0},
		"not signed":    {"", dkimBlock("a.test", `tenants = ["acme"]`), 0},
		"nothing signs": {"", "", 0},
	} {
		cfg, err := config.Parse([]byte(strings.NewReplacer("PATH", path, "MORE", x.more).Replace(listener)+x.blocks), "test.conf", nil)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(usersWarnings(cfg), "\n")
		if n := strings.Count(got, `user "ann", who may send as news@b.test only, gets a DKIM signature of a.test`); n != x.want || strings.Contains(got, "bob") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestFilesOfLoginsBelongToTheRelay: the relay reads them as its own user, whoever checks.
func TestFilesOfLoginsBelongToTheRelay(t *testing.T) {
	if _, err := user.Lookup("nobody"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "logins")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := parsed(t, "hostname = \"relay.example\"\nuser = \"nobody\"\ndata_dir = \""+dir+"/data\"\n")
	cfg.Users.File, cfg.Keys.File, cfg.Console.Address, cfg.Console.Users = path, path, "127.0.0.1:0", path
	for name, got := range map[string][]string{"nobody can log in: ": usersWarnings(cfg),
		"nobody can submit by HTTP: ": keysWarnings(cfg), "nobody can log in at the console: ": consoleWarnings(cfg)} {
		if want := name + "nobody, as whom the relay runs, can't read " + path; !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

// TestKeysOfTheClusterCount: a tenant whose key is in no file of this node has mail.
func TestKeysOfTheClusterCount(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/keys", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := parsed(t, "data_dir = \""+dir+"\"\nkeys { file = \""+dir+"/keys\" }\ntenant \"acme\" {}\n")
	if names := keysTenants(cfg); len(names) != 0 {
		t.Errorf("there are keys of %s", names)
	}
	of := auth.KeyEntries
	known, err := shared.Open(shared.Config{Path: cfg.Cluster.SharedPath(of.Kind), Now: time.Now,
		Note: func([]string) (func(), error) { return func() {}, nil }}, of)
	if err != nil {
		t.Fatal(err)
	}
	key := auth.Key{Tenant: "acme", Name: "shop", Scopes: auth.MayAll}
	if _, _, err := (auth.File{Path: cfg.Keys.File, Keys: known}).AddKey(key, time.Now()); err != nil {
		t.Fatal(err)
	}
	if names := keysTenants(cfg); len(names) != 1 || names[0] != "acme" {
		t.Errorf("there are keys of %s", names)
	}
}
