package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"
)

// End returns when the certificate of a PEM file ends: the first one, which is followed by its chain.
func End(file string) (time.Time, error) {
	all, err := readCertificates(file)
	if err != nil {
		return time.Time{}, err
	}
	return all[0].NotAfter, nil
}

// LastAuthority returns when the last of the authorities in a PEM file ends: some may have ended, as long as others
// have not.
func LastAuthority(file string) (end time.Time, err error) {
	all, err := readCertificates(file)
	for _, c := range all {
		if c.NotAfter.After(end) {
			end = c.NotAfter
		}
	}
	return end, err
}

// readCertificates reads the certificates of a PEM file, of which there is one at least, and leaves out what is not
// valid.
func readCertificates(file string) (all []*x509.Certificate, err error) {
	text, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return all, nil
}
