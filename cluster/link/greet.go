package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"example.org/mta/cluster/ca"
)

// hello is the first frame in each direction.
type hello struct {
	Newest, Oldest int    // versions that its sender speaks
	Refused        string // why it does not speak with the other side, "": it does
	Talk           string `json:",omitempty"` // what its sender opens a talk for, "": it sends messages
}

// met is who is at the other end of a connection.
type met struct {
	node   uint16    // 0 unless its certificate holds
	until  time.Time // when that ends
	newest int       // version that it speaks
	talk   string    // what it opens a talk for
}

// settings are those of both ends. Certificates are checked by greet, not by the handshake: its alerts give no reasons.
func (l *Link) settings() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"mta-cluster"}, SessionTicketsDisabled: true,
		InsecureSkipVerify: true, ClientAuth: tls.RequireAnyClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return l.cfg.Certificate() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return l.cfg.Certificate()
		},
	}
}

// greet finds out who is at the other end, which must be node want if this side has dialled, for messages or a talk;
// otherwise want is 0. Each side gives the other the reason for which it refuses it.
func (l *Link) greet(ctx context.Context, c *tls.Conn, want uint16, talk Purpose) (m met, err error) {
	c.SetDeadline(time.Now().Add(patience))
	defer c.SetDeadline(time.Time{})
	if err := c.HandshakeContext(ctx); err != nil {
		return m, err
	}
	node, until, refusal := l.identify(c.ConnectionState().PeerCertificates, want)
	mine := hello{Newest: newest, Oldest: oldest, Talk: talk.Name}
	if refusal != nil {
		mine.Refused = fmt.Sprintf("%.500s", refusal)
	}
	frame, err := encode(mine)
	if err == nil && want != 0 {
		_, err = c.Write(frame)
	}
	var theirs hello
	read := decode(c, maxHello, func() {}, &theirs)
	if err == nil && want == 0 {
		_, err = c.Write(frame)
	}
	switch {
	case refusal != nil:
		err = refusal
	case read == nil && theirs.Refused != "":
		err = fmt.Errorf("it refuses this node: %q", theirs.Refused)
	case err == nil && read != nil:
		err = read
	case err == nil && (theirs.Newest < oldest || theirs.Oldest > newest):
		err = fmt.Errorf("node %d speaks versions %d to %d of the cluster's protocol, and this node %d to %d", node,
			theirs.Oldest, theirs.Newest, oldest, newest)
	case err == nil && theirs.Newest < talk.Since:
		err = fmt.Errorf("node %d has an earlier version of mta, without %s", node, talk.Name)
	}
	return met{node, until, theirs.Newest, theirs.Talk}, err
}

// identify returns whose certificate the other side has, 0 if it does not hold here, and why it is refused.
func (l *Link) identify(chain []*x509.Certificate, want uint16) (node uint16, until time.Time, err error) {
	mine, err := l.cfg.Certificate()
	if err != nil {
		return 0, until, err
	}
	here, self, err := ca.Identity(mine.Leaf)
	if err == nil && self != l.cfg.Node {
		err = fmt.Errorf("the certificate here is of node %d, not of node %d", self, l.cfg.Node)
	}
	if err != nil {
		return 0, until, err
	}
	roots, err := l.cfg.Authorities()
	if err != nil {
		return 0, until, err
	}
	leaf := chain[0]
	there, node, err := ca.Identity(leaf)
	if err != nil {
		return 0, until, err
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: l.cfg.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	_, member := l.cfg.Address(node)
	switch {
	case err != nil:
		return 0, until, fmt.Errorf("the certificate of node %d of cluster %q: %w", node, there, err)
	case there != here:
		err = fmt.Errorf("node %d is of cluster %q, not of %q", node, there, here)
	case want != 0 && node != want:
		err = fmt.Errorf("it is node %d, not node %d", node, want)
	case node == self:
		err = fmt.Errorf("two nodes have the number %d", node)
	case !member:
		err = fmt.Errorf("node %d is not a member, or has just joined", node)
	}
	return node, leaf.NotAfter, err
}

var (
	errExpired  = errors.New("its certificate has expired")
	errNoMember = errors.New("it is not a member, or has just joined: 'mta cluster status' shows the members")
)
