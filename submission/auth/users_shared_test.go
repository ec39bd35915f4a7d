package auth

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/cluster/changes"
	"example.org/mta/cluster/enginetest"
)

// write replaces the users file of a node.
func (n *node) write(lines ...string) {
	n.Helper()
	text := ""
	for _, line := range lines {
		text += line + "\n"
	}
	must(n.T, os.WriteFile(n.path(), []byte(text), 0o600))
	n.reread()
	pass(time.Second)
}

// login logs in.
func (n *node) login(secret string) *Login {
	n.Helper()
	name, password, _ := strings.Cut(secret, "\x00")
	l, err := n.users.Password(n.T.Context(), from("192.0.2.1"), name, password)
	must(n.T, err)
	return l
}

// TestUsersAreShared: nodes join with users, of one name too; add, change and remove them by the relay and in the file;
// and a session ends where another node changes its user.
func TestUsersAreShared(t *testing.T) {
	house(t, "user", 3, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*node) {
		a, b, c := nodes[0], nodes[1], nodes[2]
		t := a.T
		ann, theirs, bob, eve := a.add("ann"), b.add("ann"), b.add("bob"), b.add("eve")
		old, err := os.ReadFile(b.path())
		must(t, err)
		a.open(true)
		pass(time.Second)
		b.open(true)
		pass(2 * time.Second)
		for _, n := range nodes[:2] {
			n.is(true, ann, bob, eve) // the cluster knew ann
			n.is(false, theirs)
		}
		a.lists("ann", "bob", "eve")
		b.lists("ann", "bob", "eve")
		of := a.login(bob)
		if of.Tenant != "acme" || !a.users.Still(of) {
			t.Errorf("%+v", of)
		}

		next := b.replace("bob", 0)
		b.is(true, next)
		pass(time.Second)
		for _, n := range nodes[:2] {
			n.is(false, bob)
			n.is(true, next)
		}
		if a.users.Still(of) {
			t.Error("a session goes on after another password")
		}
		of = b.login(eve)
		a.remove(a.file(), "eve")
		pass(time.Second)
		b.is(false, eve)
		if b.users.Still(of) {
			t.Error("a session of a removed user goes on")
		}
		if text, err := os.ReadFile(b.path()); err != nil || string(text) != string(old) {
			t.Errorf("the file is changed: %s, %v", text, err)
		}
		anew := b.make(b.file(), "eve")
		pass(time.Second)
		a.is(true, anew)
		b.is(false, eve)
		if err := a.file().ChangeUsers("add", []string{"eve"}, User{}); !errors.Is(err, ErrUserExists) {
			t.Error(err)
		}

		// What a file says of a user counts, but for an earlier password.
		was := strings.Split(string(old), "\n")
		line := func(name string) int {
			return slices.IndexFunc(was, func(l string) bool { return strings.HasPrefix(l, name+":") })
		}
		was[line("bob")] = strings.Replace(was[line("bob")], "tenant=acme", "tenant=acme role=viewer", 1)
		b.write(was...)
		a.is(false, bob)
		if got := a.login(next).Role; got != "viewer" {
			t.Errorf("the role is %q", got)
		}
		if !strings.Contains(b.log.String(), "the users file has users again as they were before a change") {
			t.Errorf("the log is\n%s", &b.log)
		}
		was[line("bob")] = "bob:" + hashed(t, "by hand").String() + ":tenant=acme"
		b.write(was...)
		a.is(true, "bob\x00by hand")
		a.is(false, next)
		b.write(slices.Delete(was, line("bob"), line("bob")+1)...)
		a.is(false, "bob\x00by hand")
		b.lists("ann", "eve")

		// One that joins with an older file brings nothing back, but what it has alone.
		must(t, os.WriteFile(c.path(), old, 0o600))
		late := c.add("late")
		c.open(true)
		pass(2 * time.Second)
		for _, n := range nodes {
			n.is(true, late, ann, anew)
			n.is(false, theirs, bob, next, eve)
			if why := n.x.Trouble(); why != "" {
				t.Error(why)
			}
			n.lists("ann", "eve", "late")
		}
		e.Do(func(rows map[[2]string]changes.Row) {
			for at, row := range rows {
				if strings.Contains(string(row.Value), "acme") {
					t.Errorf("%s is in clear: %s", at, row.Value)
				}
			}
		})
	})
}

// TestPasswordsStayReplaced: none that a user had comes back by an older file, in whichever order; a removed user does
// not, whatever password the file has.
func TestPasswordsStayReplaced(t *testing.T) {
	house(t, "user", 2, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*node) {
		a, b := nodes[0], nodes[1]
		t := a.T
		a.open(true)
		b.open(true)
		var lines []string
		for i := range 5 {
			lines = append(lines, fmt.Sprintf("ann:%s", hashed(t, fmt.Sprint(i))))
			a.write(lines[i])
		}
		for i, line := range lines[:4] {
			a.write(line)
			for _, n := range nodes {
				n.is(false, fmt.Sprintf("ann\x00%d", i))
				n.is(true, "ann\x004")
			}
		}
		last := b.replace("ann", 0)
		pass(time.Second)
		a.write(lines[4])
		a.is(true, last)
		b.is(false, "ann\x004")
		a.write("ann::tenant=acme") // no password at all
		b.is(false, last)
		a.write(lines[4])
		b.is(false, "ann\x004", last)
		b.remove(b.file(), "ann")
		pass(time.Second)
		a.write("ann:" + hashed(t, "new").String())
		for _, n := range nodes {
			n.is(false, "ann\x00new")
		}
		if !strings.Contains(a.log.String(), "that were removed, and they are not valid: 'mta user add' makes new ones") {
			t.Errorf("the log is\n%s", &a.log)
		}
	})
}

// TestRenewedHashes count at all nodes, and end no sessions.
func TestRenewedHashes(t *testing.T) {
	house(t, "user", 2, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*node) {
		a, b := nodes[0], nodes[1]
		t := a.T
		must(t, os.WriteFile(a.path(), []byte("ann:"+cheap(t, "secret")+"\n"), 0o600))
		old, err := os.ReadFile(a.path())
		must(t, err)
		a.open(true)
		b.open(true)
		pass(time.Second)
		of := b.login("ann\x00secret")
		b.users.renew.mu.Lock()
		b.users.renew.new, b.users.renew.was = nil, nil // as of a process that has not renewed it
		b.users.renew.mu.Unlock()
		a.login("ann\x00secret")
		pass(3 * time.Second)
		for _, n := range nodes {
			if u := n.users.users(0).User("ann"); u == nil || u.Hash.Scheme != SchemeSCRAM {
				t.Errorf("node %d has %+v", n.me.Node, u)
			}
			n.is(true, "ann\x00secret")
		}
		if !b.users.Still(of) {
			t.Error("a session ends with a renewal")
		}
		if text, err := os.ReadFile(a.path()); err != nil || string(text) != string(old) {
			t.Errorf("the file is changed: %s, %v", text, err)
		}
		a.write(string(old)) // with another time
		a.is(true, "ann\x00secret")
		a.replace("ann", 0)
		pass(time.Second)
		if b.users.Still(of) {
			t.Error("a session goes on after another password")
		}
	})
}

// TestACertificateOfTwo: it is the same user's at all nodes, and an alarm.
func TestACertificateOfTwo(t *testing.T) {
	house(t, "user", 2, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*node) {
		a, b := nodes[0], nodes[1]
		t := a.T
		cert := &x509.Certificate{Raw: []byte("cert"), NotAfter: time.Now().Add(time.Hour)}
		sum := sha256.Sum256(cert.Raw)
		with := "::certificate=sha256:" + hex.EncodeToString(sum[:])
		must(t, os.WriteFile(a.path(), []byte("bob"+with+"\n"), 0o600))
		must(t, os.WriteFile(b.path(), []byte("ann"+with+"\n"), 0o600))
		client := Client{Peer: netip.MustParseAddrPort("192.0.2.1:1"),
			TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}
		is := func(name, trouble string) {
			t.Helper()
			for _, n := range nodes {
				l := n.users.Certificate(t.Context(), client)
				if l == nil || l.User != name || n.users.Problem() != trouble {
					t.Errorf("node %d: %+v, %s", n.me.Node, l, n.users.Problem())
				}
			}
		}
		a.open(true)
		b.open(true)
		pass(2 * time.Second)
		is("ann", `user "bob" has the same certificate as "ann", whom it logs in: give one of them another`)
		err := a.file().ChangeUsers("add", []string{"aaa"}, User{Certificates: []string{"sha256:" + hex.EncodeToString(sum[:])}})
		if !errors.Is(err, ErrInvalidUser) || !strings.Contains(err.Error(), "the same certificate") {
			t.Error(err)
		}
		added := a.make(a.file(), "zoe") // as any other
		pass(time.Second)
		b.is(true, added)
		b.remove(b.file(), "ann")
		pass(time.Second)
		is("bob", "")
	})
}
