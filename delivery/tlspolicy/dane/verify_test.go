package dane

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const mx = "mx.example.com"

func TestEndEntity(t *testing.T) {
	leaf, other := issue(t, nil, false, "elsewhere.example"), issue(t, nil, false, mx)
	for _, selector := range []uint8{0, 1} {
		for _, matching := range []uint8{0, 1, 2} {
			rec := record(endEntity, selector, matching, leaf)
			h := demand(mx, []Record{rec})
			t.Run(fmt.Sprintf("3 %d %d", selector, matching), func(t *testing.T) {
				if h.Status != Usable {
					t.Fatalf("%v, want usable", h.Status)
				}
				// Neither the name nor the date counts (RFC 7672, 3.1.1).
				if got, err := h.Verify(chain(leaf), noon.AddDate(5, 0, 0)); err != nil || got.String() != rec.String() {
					t.Errorf("%v, %v", got, err)
				}
				if _, err := h.Verify(chain(other), noon); !errors.Is(err, ErrNoMatch) {
					t.Errorf("another certificate: %v", err)
				}
				// Sending the expected certificate along proves nothing: its key must be the server's.
				if _, err := h.Verify(chain(other, leaf), noon); !errors.Is(err, ErrNoMatch) {
					t.Errorf("the certificate as an intermediate: %v", err)
				}
			})
		}
	}
	h := demand(mx, []Record{record(endEntity, 0, 1, leaf)})
	if _, err := h.Verify(nil, noon); !errors.Is(err, ErrNoCertificate) {
		t.Errorf("no certificate: %v", err)
	}
}

func TestTrustAnchor(t *testing.T) {
	root := issue(t, nil, true)
	between := issue(t, root, true)
	leaf := issue(t, between, false, mx, "*.wild.example")
	stranger := issue(t, issue(t, nil, true), false, mx)
	selfSigned := issue(t, nil, false, mx)
	customer := issue(t, root, false, "customer.example")
	forged := issue(t, customer, false, mx)
	underKey := issue(t, root, false, mx)
	late := noon.AddDate(0, 0, 2)
	for _, tc := range []struct {
		name  string
		rec   Record
		chain []*x509.Certificate
		now   time.Time
		names []string
		want  string // in the error, "" for none
	}{
		{"root in the chain", record(2, 0, 1, root), chain(leaf, between, root), noon, nil, ""},
		{"order of the chain is free", record(2, 1, 2, root), chain(leaf, root, between), noon, nil, ""},
		{"intermediate is the anchor, no root", record(2, 1, 1, between), chain(leaf, between), noon, nil, ""},
		{"digest of a root that is not sent", record(2, 0, 1, root), chain(leaf, between), noon, nil, "matches no TLSA record"},
		{"root in the record, not sent", record(2, 0, 0, root), chain(leaf, between), noon, nil, ""},
		{"key in the record, not sent", record(2, 1, 0, root), chain(leaf, between), noon, nil, ""},
		{"key in the record signed the server's", record(2, 1, 0, root), chain(underKey), noon, nil, ""},
		{"key in the record signed nothing", record(2, 1, 0, root), chain(stranger), noon, nil, "matches no TLSA record"},
		{"key in the record, by way of another's certificate", record(2, 1, 0, root), chain(forged, customer), noon, nil, "matches no TLSA record"},
		{"root, by way of another's certificate", record(2, 0, 1, root), chain(forged, customer, root), noon, nil, "x509:"},
		{"chain of another", record(2, 0, 1, root), chain(stranger, between, root), noon, nil, "unknown authority"},
		{"root in the record, chain of another", record(2, 0, 0, root), chain(stranger), noon, nil, "unknown authority"},
		{"server's own certificate is no anchor", record(2, 0, 1, selfSigned), chain(selfSigned), noon, nil, "matches no TLSA record"},
		{"expired", record(2, 0, 1, root), chain(leaf, between, root), late, nil, "expired"},
		{"expired, key in the record", record(2, 1, 0, root), chain(underKey), late, nil, "expired"},
		{"another name", record(2, 0, 1, root), chain(customer, root), noon, nil, "is valid for customer.example, not mx.example.com"},
		{"name of the recipient's domain", record(2, 0, 1, root), chain(customer, root), noon, []string{"customer.example"}, ""},
		{"wildcard", record(2, 0, 1, between), chain(leaf, between), noon, []string{"a.wild.example"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := demand(mx, []Record{tc.rec})
			if h.Status != Usable {
				t.Fatalf("%v, want usable", h.Status)
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
	root := issue(t, nil, true)
	leaf, next := issue(t, root, false, "elsewhere.example"), issue(t, nil, false, mx)
	h := demand(mx, []Record{record(3, 1, 1, next), record(2, 0, 1, root), record(3, 1, 1, leaf), {0, 0, 1, make([]byte, 32)}})
	if got, err := h.Verify(chain(leaf, root), noon); err != nil || got.Usage != endEntity {
		t.Errorf("%v, %v", got, err)
	}
	var hostname x509.HostnameError
	h = demand(mx, []Record{record(3, 1, 1, next), record(2, 0, 1, root)})
	if _, err := h.Verify(chain(leaf, root), noon); !errors.As(err, &hostname) {
		t.Errorf("%v, want the cause found in the error", err)
	}
}

func TestUsable(t *testing.T) {
	leaf := issue(t, nil, false, mx)
	d256, d512, whole := record(3, 1, 1, leaf), record(3, 1, 2, leaf), record(3, 1, 0, leaf)
	cert512, ta256 := record(3, 0, 2, leaf), record(2, 1, 1, leaf)
	short := Record{3, 1, 2, d512.Data[:63]}
	for _, tc := range []struct {
		name      string
		have, use []Record
	}{
		{"PKIX usages", []Record{record(0, 0, 1, leaf), record(1, 1, 1, leaf)}, nil},
		{"private usage", []Record{record(255, 0, 1, leaf)}, nil},
		{"unknown selector", []Record{{3, 2, 1, d256.Data}}, nil},
		{"unknown matching type", []Record{{3, 1, 3, d256.Data}, {3, 1, 255, d256.Data}}, nil},
		{"digest of the wrong length", []Record{{3, 1, 1, d512.Data}, {3, 1, 2, d256.Data}, {3, 1, 1, nil}}, nil},
		{"no certificate", []Record{{3, 0, 0, d256.Data}, {2, 0, 0, nil}}, nil},
		{"no key", []Record{{3, 1, 0, d256.Data}, {2, 1, 0, leaf.cert.Raw}}, nil},
		// RFC 7671, 9.
		{"strongest digest", []Record{d256, d512, whole}, []Record{d512, whole}},
		{"for each usage and selector", []Record{d256, cert512, ta256}, []Record{d256, cert512, ta256}},
		{"malformed one counts for nothing", []Record{d256, short}, []Record{d256}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := demand(mx, tc.have)
			same := func(a, b Record) bool { return a.String() == b.String() }
			if !slices.EqualFunc(h.Records, tc.use, same) {
				t.Errorf("%v, want %v", h.Records, tc.use)
			}
			if want := map[bool]Status{true: Usable, false: Unusable}[len(tc.use) > 0]; h.Status != want {
				t.Errorf("%v, want %v", h.Status, want)
			}
		})
	}
}

// FuzzRecord is about records that anybody publishes: whatever they are, a certificate that they don't
// name doesn't match.
func FuzzRecord(f *testing.F) {
	root := issue(f, nil, true)
	leaf := issue(f, root, false, mx)
	for selector := range uint8(2) {
		for matching := range uint8(3) {
			for usage := range uint8(4) {
				r := record(usage, selector, matching, root)
				f.Add(r.Usage, r.Selector, r.Matching, r.Data)
			}
		}
	}
	stranger := chain(issue(f, issue(f, nil, true), false, mx))
	ours := chain(leaf, root)
	f.Fuzz(func(t *testing.T, usage, selector, matching uint8, data []byte) {
		r := Record{usage, selector, matching, data}
		h := demand(mx, []Record{r})
		if _, err := h.Verify(stranger, noon); err == nil {
			t.Errorf("%v: matches a stranger's certificate", r)
		}
		if _, err := h.Verify(ours, noon); err == nil && (h.Status != Usable || !r.names(ours)) {
			t.Errorf("%v: matches without being the record of the chain", r)
		}
		if len(r.String()) > 60 {
			t.Errorf("%v is long", r)
		}
	})
}

// names reports whether r is the record of a certificate in the chain, found by making all of those.
func (r Record) names(chain []*x509.Certificate) bool {
	return slices.ContainsFunc(chain, func(cert *x509.Certificate) bool {
		return string(record(r.Usage, r.Selector, r.Matching, &issuer{cert: cert}).Data) == string(r.Data)
	})
}
