package bench

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
)

// The names of the files that WriteCertificate writes.
const (
	certificateFile = "certificate.pem"
	keyFile         = "key.pem"
)

// WriteCertificate writes the first certificate of cfg, and its key, as certificate.pem and key.pem.
func WriteCertificate(cfg *tls.Config, dir string) error {
	key, err := x509.MarshalPKCS8PrivateKey(cfg.Certificates[0].PrivateKey)
	if err != nil {
		return fmt.Errorf("writing the key: %w", err)
	}
	for name, block := range map[string]*pem.Block{
		certificateFile: {Type: "CERTIFICATE", Bytes: cfg.Certificates[0].Certificate[0]},
		keyFile:         {Type: "PRIVATE KEY", Bytes: key},
	} {
		var text bytes.Buffer
		_ = pem.Encode(&text, block) // to memory: can't fail
		if err := os.WriteFile(filepath.Join(dir, name), text.Bytes(), 0o600); err != nil {
			return fmt.Errorf("writing the certificate: %w", err)
		}
	}
	return nil
}
