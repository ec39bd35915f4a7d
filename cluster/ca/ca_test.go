package ca

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/certificates"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func authority(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ca")
	if err := Init(dir, "mail", now); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestACertificateNamesItsNode(t *testing.T) {
	dir := authority(t)
	p, err := Issue(dir, 7, NodeHolds, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.LoadX509KeyPair(p.Certificate, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	if uri := c.Leaf.URIs[0].String(); uri != "mta://mail/node/7" {
		t.Errorf("the certificate is of %s", uri)
	}
	if cluster, node, err := Identity(c.Leaf); cluster != "mail" || node != 7 || err != nil {
		t.Errorf("it names node %d of %q, %v", node, cluster, err)
	}
	roots, err := certificates.ReadAuthorities(filepath.Join(dir, Certificate))
	if err != nil {
		t.Fatal(err)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Error(err)
		}
	}
	if left, err := Left(p.Certificate, now); left != NodeHolds || err != nil {
		t.Errorf("it holds %v, %v", left, err)
	}
	if left, _ := Left(filepath.Join(dir, Certificate), now); left != authorityHolds {
		t.Errorf("the authority holds %v", left)
	}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if info, _ := f.Info(); info.Mode() != 0o600 {
			t.Errorf("%s has mode %v", f.Name(), info.Mode())
		}
	}
	if len(files) != 4 {
		t.Errorf("the folder has %v", files)
	}
}

// A renewed certificate fits the node's key, and a store that has read the old one uses it without a restart.
func TestARenewedCertificateIsUsedAtOnce(t *testing.T) {
	dir := authority(t)
	p, err := Issue(dir, 7, NodeHolds, now)
	if err != nil {
		t.Fatal(err)
	}
	at := now
	store := certificates.New(func() time.Time { return at }, slog.New(slog.DiscardHandler))
	before, err := store.Client(p)
	if err != nil {
		t.Fatal(err)
	}
	at = now.Add(2 * NodeHolds) // it has expired
	if left, _ := Left(p.Certificate, at); left != -NodeHolds {
		t.Errorf("it holds %v", left)
	}
	if err := Renew(dir, p.Certificate, NodeHolds, at); err != nil {
		t.Fatal(err)
	}
	after, err := store.Client(p)
	if err != nil || after.Leaf.Equal(before.Leaf) || !after.Leaf.NotAfter.Equal(at.Add(NodeHolds)) {
		t.Errorf("the store has a certificate until %v, %v", after.Leaf.NotAfter, err)
	}
}

func TestACertificateEndsBeforeItsAuthority(t *testing.T) {
	dir := authority(t)
	late := now.Add(authorityHolds - time.Hour)
	p, err := Issue(dir, 1, NodeHolds, late)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := Left(p.Certificate, late); left != time.Hour {
		t.Errorf("it holds %v", left)
	}
	if err := Renew(dir, p.Certificate, NodeHolds, late.Add(time.Hour)); err == nil {
		t.Error("an authority that has expired renews")
	}
}

func TestWhatAnAuthorityRefuses(t *testing.T) {
	dir, other := authority(t), authority(t)
	p, err := Issue(dir, 3, NodeHolds, now)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(dir string, node uint16) error {
		_, err := Issue(dir, node, NodeHolds, now)
		return err
	}
	for want, err := range map[string]error{
		"ca-key.pem exists":            Init(dir, "mail", now),
		`"Mail/1" is not a valid name`: Init(t.TempDir(), "Mail/1", now),
		"0 is not a valid number":      issue(dir, 0),
		"1024 is not a valid number":   issue(dir, 1024),
		"node-3-key.pem exists":        issue(dir, 3),
		"no such file":                 issue(t.TempDir(), 4),
		"is not of the authority":      Renew(other, p.Certificate, NodeHolds, now),
		"has no certificate":           Renew(dir, p.Key, NodeHolds, now),
		"names no node":                Renew(dir, filepath.Join(dir, Certificate), NodeHolds, now),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, uri := range []string{"mta://mail/node/0", "mta://mail/node/1024", "mta://mail/node/07", "mta://mail/node/7x",
		"mta://mail/node/7?a", "mta://a@mail/node/7", "http://mail/node/7", "mta://mail", "mta:node"} {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		if _, node, err := Identity(&x509.Certificate{URIs: []*url.URL{u}}); err == nil {
			t.Errorf("%s is node %d", uri, node)
		}
	}
	if _, _, err := Identity(new(x509.Certificate)); err == nil {
		t.Error("a certificate without a name is a node's")
	}
}
