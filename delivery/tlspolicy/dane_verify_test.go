package tlspolicy

import (
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/testca"
)

const mx = "mx.example.com"

var today = time.Now() // certificates are valid for a day

// issued is a certificate for a name by an authority of which nobody has heard.
func issued(t testing.TB, name string) *x509.Certificate {
	return testca.New(t).Issue(t, []string{name}).Leaf
}

// record makes the TLSA record of a certificate.
func record(usage, selector, matching uint8, of *x509.Certificate) TLSARecord {
	data := of.Raw
	if selector == publicKey {
		data = of.RawSubjectPublicKeyInfo
	}
	switch matching {
	case digest256:
		sum := sha256.Sum256(data)
		data = sum[:]
	case digest512:
		sum := sha512.Sum512(data)
		data = sum[:]
	}
	return TLSARecord{usage, selector, matching, data}
}

func chain(certs ...*x509.Certificate) []*x509.Certificate { return certs }

func TestEndEntity(t *testing.T) {
	leaf, other := issued(t, "elsewhere.example"), issued(t, mx)
	for _, selector := range []uint8{0, 1} {
		for _, matching := range []uint8{0, 1, 2} {
			rec := record(endEntity, selector, matching, leaf)
			h := usableOf(mx, []TLSARecord{rec})
			t.Run(fmt.Sprintf("3 %d %d", selector, matching), func(t *testing.T) {
				if h.State != Usable {
					t.Fatalf("%v, want usable", h.State)
				}
				// Neither the name nor the date counts (RFC 7672, 3.1.1).
				if got, err := h.Verify(chain(leaf), today.AddDate(5, 0, 0)); err != nil || got.String() != rec.String() {
					t.Errorf("%v, %v", got, err)
				}
				if _, err := h.Verify(chain(other), today); !errors.Is(err, ErrNoMatch) {
					t.Errorf("another certificate: %v", err)
				}
				// Sending the expected certificate along proves nothing: its key must be the server's.
				if _, err := h.Verify(chain(other, leaf), today); !errors.Is(err, ErrNoMatch) {
					t.Errorf("the certificate as an intermediate: %v", err)
				}
			})
		}
	}
	h := usableOf(mx, []TLSARecord{record(endEntity, 0, 1, leaf)})
	if _, err := h.Verify(nil, today); !errors.Is(err, ErrNoCertificate) {
		t.Errorf("no certificate: %v", err)
	}
}

func TestTrustAnchor(t *testing.T) {
	ca := testca.New(t)
	root, between := ca.Certificate, ca.Issue(t, []string{"between"}, testca.Issuing)
	leaf := testca.As(between).Issue(t, []string{mx, "*.wild.example"}).Leaf
	stranger := issued(t, mx)
	customer := ca.Issue(t, []string{"customer.example"})
	forged := testca.As(customer).Issue(t, []string{mx}).Leaf
	underKey := ca.Issue(t, []string{mx}).Leaf
	late := today.AddDate(0, 0, 2)
	for _, tc := range []struct {
		name  string
		rec   TLSARecord
		chain []*x509.Certificate
		now   time.Time
		names []string
		want  string // in the error, "" for none
	}{
		{"root in the chain", record(2, 0, 1, root), chain(leaf, between.Leaf, root), today, nil, ""},
		{"order of the chain is free", record(2, 1, 2, root), chain(leaf, root, between.Leaf), today, nil, ""},
		{"intermediate is the anchor, no root", record(2, 1, 1, between.Leaf), chain(leaf, between.Leaf), today, nil, ""},
		{"digest of a root that is not sent", record(2, 0, 1, root), chain(leaf, between.Leaf), today, nil, "matches no TLSA record"},
		{"root in the record, not sent", record(2, 0, 0, root), chain(leaf, between.Leaf), today, nil, ""},
		{"key in the record, not sent", record(2, 1, 0, root), chain(leaf, between.Leaf), today, nil, ""},
		{"key in the record signed the server's", record(2, 1, 0, root), chain(underKey), today, nil, ""},
		{"key in the record signed nothing", record(2, 1, 0, root), chain(stranger), today, nil, "matches no TLSA record"},
		{"key in the record, by way of another's certificate", record(2, 1, 0, root), chain(forged, customer.Leaf), today, nil, "matches no TLSA record"},
		{"root, by way of another's certificate", record(2, 0, 1, root), chain(forged, customer.Leaf, root), today, nil, "x509:"},
		{"chain of another", record(2, 0, 1, root), chain(stranger, between.Leaf, root), today, nil, "unknown authority"},
		{"root in the record, chain of another", record(2, 0, 0, root), chain(stranger), today, nil, "unknown authority"},
		{"server's own certificate is no anchor", record(2, 0, 1, underKey), chain(underKey), today, nil, "matches no TLSA record"},
		{"expired", record(2, 0, 1, root), chain(leaf, between.Leaf, root), late, nil, "expired"},
		{"expired, key in the record", record(2, 1, 0, root), chain(underKey), late, nil, "expired"},
		{"another name", record(2, 0, 1, root), chain(customer.Leaf, root), today, nil, "is valid for customer.example, not mx.example.com"},
		{"name of the recipient's domain", record(2, 0, 1, root), chain(customer.Leaf, root), today, []string{"customer.example"}, ""},
		{"wildcard", record(2, 0, 1, between.Leaf), chain(leaf, between.Leaf), today, []string{"a.wild.example"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := usableOf(mx, []TLSARecord{tc.rec})
			if h.State != Usable {
				t.Fatalf("%v, want usable", h.State)
			}
			_, err := h.Verify(tc.chain, tc.now, tc.names...)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// One record that matches is enough, whatever stands beside it: so keys are rolled over.
func TestAnyRecordMatches(t *testing.T) {
	ca := testca.New(t)
	root, leaf, next := ca.Certificate, ca.Issue(t, []string{"elsewhere.example"}).Leaf, issued(t, mx)
	h := usableOf(mx, []TLSARecord{record(3, 1, 1, next), record(2, 0, 1, root), record(3, 1, 1, leaf), {0, 0, 1, make([]byte, 32)}})
	if got, err := h.Verify(chain(leaf, root), today); err != nil || got.Usage != endEntity {
		t.Errorf("%v, %v", got, err)
	}
	var hostname x509.HostnameError
	h = usableOf(mx, []TLSARecord{record(3, 1, 1, next), record(2, 0, 1, root)})
	if _, err := h.Verify(chain(leaf, root), today); !errors.As(err, &hostname) {
		t.Errorf("%v, want the cause found in the error", err)
	}
}

// longKey is a public key of 32,768 bits.
func longKey(t *testing.T) []byte {
	n := new(big.Int).Lsh(big.NewInt(1), 32768-1)
	der, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 1<<31 - 1})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestUsable(t *testing.T) {
	leaf := issued(t, mx)
	d256, d512, whole := record(3, 1, 1, leaf), record(3, 1, 2, leaf), record(3, 1, 0, leaf)
	cert512, ta256 := record(3, 0, 2, leaf), record(2, 1, 1, leaf)
	short := TLSARecord{3, 1, 2, d512.Data[:63]}
	for _, tc := range []struct {
		name      string
		have, use []TLSARecord
	}{
		{"PKIX usages", []TLSARecord{record(0, 0, 1, leaf), record(1, 1, 1, leaf)}, nil},
		{"private usage", []TLSARecord{record(255, 0, 1, leaf)}, nil},
		{"unknown selector", []TLSARecord{{3, 2, 1, d256.Data}}, nil},
		{"unknown matching type", []TLSARecord{{3, 1, 3, d256.Data}, {3, 1, 255, d256.Data}}, nil},
		{"digest of the wrong length", []TLSARecord{{3, 1, 1, d512.Data}, {3, 1, 2, d256.Data}, {3, 1, 1, nil}}, nil},
		{"no certificate", []TLSARecord{{3, 0, 0, d256.Data}, {2, 0, 0, nil}}, nil},
		{"no key", []TLSARecord{{3, 1, 0, d256.Data}, {2, 1, 0, leaf.Raw}}, nil},
		{"a key that takes long to check", []TLSARecord{{2, 1, 0, longKey(t)}}, nil},
		// RFC 7671, 9.
		{"strongest digest", []TLSARecord{d256, d512, whole}, []TLSARecord{d512, whole}},
		{"for each usage and selector", []TLSARecord{d256, cert512, ta256}, []TLSARecord{d256, cert512, ta256}},
		{"malformed one counts for nothing", []TLSARecord{d256, short}, []TLSARecord{d256}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := usableOf(mx, tc.have)
			same := func(a, b TLSARecord) bool { return a.String() == b.String() }
			if !slices.EqualFunc(h.Records, tc.use, same) {
				t.Errorf("%v, want %v", h.Records, tc.use)
			}
			if want := map[bool]TLSAState{true: Usable, false: Unusable}[len(tc.use) > 0]; h.State != want {
				t.Errorf("%v, want %v", h.State, want)
			}
		})
	}
}

// FuzzRecord is about records that anybody publishes: whatever they are, a certificate that they don't
// name doesn't match.
func FuzzRecord(f *testing.F) {
	ca := testca.New(f)
	root := ca.Certificate
	for selector := range uint8(2) {
		for matching := range uint8(3) {
			for usage := range uint8(4) {
				r := record(usage, selector, matching, root)
				f.Add(r.Usage, r.Selector, r.Matching, r.Data)
			}
		}
	}
	stranger, ours := chain(issued(f, mx)), chain(ca.Issue(f, []string{mx}).Leaf, root)
	f.Fuzz(func(t *testing.T, usage, selector, matching uint8, data []byte) {
		r := TLSARecord{usage, selector, matching, data}
		h := usableOf(mx, []TLSARecord{r})
		if _, err := h.Verify(stranger, today); err == nil {
			t.Errorf("%v: matches a stranger's certificate", r)
		}
		if _, err := h.Verify(ours, today); err == nil && (h.State != Usable || !r.names(ours)) {
			t.Errorf("%v: matches without being the record of the chain", r)
		}
		if len(r.String()) > 60 {
			t.Errorf("%v is long", r)
		}
	})
}

// names reports whether r is the record of a certificate in the chain, found by making all of those.
func (r TLSARecord) names(chain []*x509.Certificate) bool {
	return slices.ContainsFunc(chain, func(cert *x509.Certificate) bool {
		return string(record(r.Usage, r.Selector, r.Matching, cert).Data) == string(r.Data)
	})
}
