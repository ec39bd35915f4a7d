package certificates

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"example.org/mta/internal/smallfile"
	"example.org/mta/internal/testca"
)

// cached has a folder with a certificate for mx.example.com as an ACME keeps it, and its text.
func cached(t *testing.T) (Cache, []byte) {
	t.Helper()
	c := testca.New(t).Issue(t, []string{"mx.example.com"})
	key, err := x509.MarshalECPrivateKey(c.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})
	for _, der := range c.Certificate {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return Cache{Dir: t.TempDir(), Now: func() time.Time { return time.Unix(1e9, 0) }, Log: slog.New(slog.DiscardHandler)}, text
}

// has reports whether a manager has the certificate in a folder. Without one it asks an authority that is not there.
func has(cache autocert.Cache) bool {
	m := &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: cache, HostPolicy: autocert.HostWhitelist("mx.example.com"),
		Client: &acme.Client{DirectoryURL: "http://127.0.0.1:1/", RetryBackoff: func(int, *http.Request, *http.Response) time.Duration { return -1 }},
	}
	c, err := m.GetCertificate(&tls.ClientHelloInfo{
		ServerName: "mx.example.com", SupportedVersions: []uint16{tls.VersionTLS13}, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}, SupportedCurves: []tls.CurveID{tls.CurveP256},
	})
	return err == nil && c.Leaf.DNSNames[0] == "mx.example.com"
}

// TestAnyBitOfACertificate: what is damaged is missing, so that the authority is asked, and kept for the alarm.
func TestAnyBitOfACertificate(t *testing.T) {
	c, text := cached(t)
	ctx, path := t.Context(), filepath.Join(c.Dir, "mx.example.com")
	if err := c.Put(ctx, "mx.example.com", text); err != nil || !has(c) {
		t.Fatal("a certificate that was kept is not found", err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(whole) {
		rotten := bytes.Clone(whole)
		rotten[bit/8] ^= 1 << (bit % 8)
		os.WriteFile(path, rotten, 0o600)
		if got, err := c.Get(ctx, "mx.example.com"); err != autocert.ErrCacheMiss {
			t.Fatalf("bit %d: %v, %q", bit, err, got)
		}
		if aside, _ := smallfile.Aside(c.Dir); len(aside) != 1 || os.Remove(aside[0]) != nil {
			t.Fatalf("bit %d: set aside: %q", bit, aside)
		}
	}
	os.WriteFile(path, nil, 0o600) // a power cut, to an earlier program
	if has(c) {
		t.Error("an empty file is a certificate")
	}
	if err := c.Put(ctx, "mx.example.com", text); err != nil || !has(c) {
		t.Error("the certificate that came in its place is not found", err)
	}
	for range 2 {
		if err := c.Delete(ctx, "mx.example.com"); err != nil || has(c) {
			t.Error("after the deletion", err)
		}
	}
}

// TestCertificatesOfEarlierPrograms are read, get their sums, and earlier programs read those.
func TestCertificatesOfEarlierPrograms(t *testing.T) {
	c, text := cached(t)
	earlier, path := autocert.DirCache(c.Dir), filepath.Join(c.Dir, "mx.example.com")
	if err := earlier.Put(t.Context(), "mx.example.com", text); err != nil {
		t.Fatal(err)
	}
	if !has(c) {
		t.Error("a certificate of an earlier program is not found")
	}
	if now, _ := os.ReadFile(path); !bytes.HasPrefix(now, []byte("sum ")) {
		t.Errorf("it has no sum: %.30q", now)
	}
	if !has(c) || !has(earlier) {
		t.Errorf("with its sum it is found: %v, by an earlier program: %v", has(c), has(earlier))
	}
}
