// Package ca is the certificate authority of a cluster. It has a folder with its certificate and key, and issues one
// certificate for each node, with the node's number in it. The key of a node is never needed again: a renewal is a new
// certificate for the same key, made of the old one, so that replacing one file is all of it.
package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"example.org/mta/internal/certificates"
	"example.org/mta/internal/smallfile"
)

// How long certificates hold.
const (
	authorityHolds = 10 * 365 * 24 * time.Hour
	NodeHolds      = 365 * 24 * time.Hour // by default
	early          = time.Hour            // before it is made, for clocks that are behind
)

// LastNode is the highest number that a node can have; the lowest is 1.
const LastNode = 1023

// Files of an authority's folder.
const (
	Certificate = "ca.pem" // all nodes have a copy
	Key         = "ca-key.pem"
)

// Init makes the authority of a cluster in a folder, which is made, too. It fails when the folder has one.
func Init(dir, cluster string, now time.Time) error {
	if !names.MatchString(cluster) {
		return fmt.Errorf("%q is not a valid name of a cluster (want up to 63 lower-case letters, digits and hyphens)",
			cluster)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key, err := newKey(filepath.Join(dir, Key))
	if err != nil {
		return err
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "mta cluster " + cluster}, IsCA: true,
		BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		URIs: []*url.URL{{Scheme: "mta", Host: cluster}}, NotAfter: now.Add(authorityHolds)}
	return write(filepath.Join(dir, Certificate), template, template, now, &key.PublicKey, key)
}

var names = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Issue makes a key and a certificate for a node, in the authority's folder: node-7.pem and node-7-key.pem. It fails
// when they exist.
func Issue(dir string, node uint16, holds time.Duration, now time.Time) (p certificates.Pair, err error) {
	if node < 1 || node > LastNode {
		return p, fmt.Errorf("%d is not a valid number of a node (want 1 to %d)", node, LastNode)
	}
	authority, err := load(dir)
	if err != nil {
		return p, err
	}
	p.Certificate = filepath.Join(dir, fmt.Sprintf("node-%d.pem", node))
	p.Key = filepath.Join(dir, fmt.Sprintf("node-%d-key.pem", node))
	key, err := newKey(p.Key)
	if err != nil {
		return p, err
	}
	return p, sign(p.Certificate, authority, authority.Leaf.URIs[0].Host, node, &key.PublicKey, holds, now)
}

// Renew replaces the certificate of a node in a file by one that holds longer. It may have expired.
func Renew(dir, file string, holds time.Duration, now time.Time) error {
	authority, err := load(dir)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return fmt.Errorf("%s has no certificate in PEM", file)
	}
	old, err := x509.ParseCertificate(block.Bytes)
	if err == nil {
		err = old.CheckSignatureFrom(authority.Leaf)
	}
	if err != nil {
		return fmt.Errorf("%s is not of the authority in %s: %w", file, dir, err)
	}
	cluster, node, err := Identity(old)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return sign(file, authority, cluster, node, old.PublicKey, holds, now)
}

// Left is how long the certificate in a file holds yet; below 0: it has expired.
func Left(file string, now time.Time) (time.Duration, error) {
	end, err := certificates.End(file)
	return end.Sub(now), err
}

// Identity is whose a certificate is.
func Identity(c *x509.Certificate) (cluster string, node uint16, err error) {
	if len(c.URIs) == 1 {
		cluster = c.URIs[0].Host
		fmt.Sscanf(c.URIs[0].Path, "/node/%d", &node)
	}
	if node < 1 || node > LastNode || c.URIs[0].String() != identity(cluster, node).String() {
		return "", 0, fmt.Errorf("the certificate of %.64q names no node of a cluster", c.Subject.CommonName)
	}
	return cluster, node, nil
}

func identity(cluster string, node uint16) *url.URL {
	return &url.URL{Scheme: "mta", Host: cluster, Path: fmt.Sprintf("/node/%d", node)}
}

func load(dir string) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(filepath.Join(dir, Certificate), filepath.Join(dir, Key))
	if err == nil && (!c.Leaf.IsCA || len(c.Leaf.URIs) != 1) {
		err = errors.New("it is not the authority of a cluster")
	}
	if err != nil {
		return nil, fmt.Errorf("the authority in %s: %w", dir, err)
	}
	return &c, nil
}

// newKey makes a key in a file that does not exist yet.
func newKey(file string) (*ecdsa.PrivateKey, error) {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, fmt.Errorf("%s exists, and is not replaced", file))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, smallfile.Write(file, 0o600, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// sign writes a node's certificate, which ends before that of its authority.
func sign(file string, by *tls.Certificate, cluster string, node uint16, public any, holds time.Duration,
	now time.Time) error {
	end := now.Add(holds)
	if end.After(by.Leaf.NotAfter) {
		end = by.Leaf.NotAfter
	}
	if !end.After(now) {
		return fmt.Errorf("a certificate that ends at %s would have expired", end.UTC().Format(time.RFC3339))
	}
	return write(file, &x509.Certificate{Subject: pkix.Name{CommonName: fmt.Sprintf("%s node %d", cluster, node)},
		KeyUsage: x509.KeyUsageDigitalSignature, URIs: []*url.URL{identity(cluster, node)}, NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, by.Leaf, now, public, by.PrivateKey)
}

func write(file string, template, parent *x509.Certificate, now time.Time, public, private any) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template.SerialNumber, template.NotBefore = serial, now.Add(-early)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, private)
	if err != nil {
		return err
	}
	return smallfile.Write(file, 0o600, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
