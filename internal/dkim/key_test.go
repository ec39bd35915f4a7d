package dkim

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestKeysAreRead(t *testing.T) {
	for _, alg := range []Algorithm{Ed25519, RSA} {
		signer, text, err := Generate(alg, 2048)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := NewKey("acme.example", "s", signer)
		block, _ := pem.Decode(text)
		forms := map[string]string{"PEM": string(text), "PEM without lines": base64.StdEncoding.EncodeToString(block.Bytes)}
		if k, ok := signer.(*rsa.PrivateKey); ok {
			forms["PKCS #1"] = string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}))
		}
		for name, form := range forms {
			signer, err := ParseKey([]byte(form))
			if err != nil {
				t.Errorf("%s as %s: %v", alg, name, err)
				continue
			}
			if k, _ := NewKey("acme.example", "s", signer); k.Record() != want.Record() {
				t.Errorf("%s as %s is another key", alg, name)
			}
		}
	}
	// RFC 8463, A.2
	signer, err := ParseKey([]byte("nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="))
	if err != nil {
		t.Fatal(err)
	}
	k, _ := NewKey("football.example.com", "brisbane", signer)
	if k.Record() != "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=" {
		t.Errorf("the record is %s", k.Record())
	}
}

func TestWrongKeys(t *testing.T) {
	small, err := rsa.GenerateKey(nil, 1024)
	if err != nil {
		t.Fatal(err)
	}
	public, _ := x509.MarshalPKIXPublicKey(&small.PublicKey)
	for text, want := range map[string]string{
		"":           "",
		"not a key":  "not a valid private key",
		"bm9rZXk=\n": "can't be read",
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})):            "public key",
		string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: public})): "encrypted",
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("broken")})): "can't be read",
	} {
		if _, err := ParseKey([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

func TestModeOfAKeyFile(t *testing.T) {
	_, text, err := Generate(Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	for mode, good := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: true, 0o644: false, 0o660: false, 0o604: false} {
		os.Remove(path)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKey(path); good != (err == nil) {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
	if _, err := LoadKey(filepath.Dir(path)); err == nil {
		t.Error("a folder is a key")
	}
	os.Remove(path)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() { _, err := LoadKey(path); read <- err }()
	select {
	case err := <-read:
		if err == nil {
			t.Error("a pipe is a key")
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for a writer")
	}
}

func TestRecordsThatFit(t *testing.T) {
	ed, rs := testKeys()[0], testKeys()[1]
	_, p, _ := strings.Cut(ed.Record(), "p=")
	pkcs1 := base64.StdEncoding.EncodeToString(x509.MarshalPKCS1PublicKey(rs.signer.Public().(*rsa.PublicKey)))
	for _, c := range []struct {
		key          *Key
		record, want string
	}{
		{ed, ed.Record(), ""},
		{rs, rs.Record(), ""},
		{rs, "p=" + pkcs1, ""},
		{ed, "v=DKIM1;k=ed25519 ; p = " + p[:10] + " " + p[10:] + ";", ""},
		{ed, "v=DKIM1; k=ed25519; t=s:y; p=" + p, "testing"},
		{ed, "v=DKIM1; k=rsa; p=" + p, "for a key of type rsa"},
		{ed, "v=DKIM1; k=ed25519; p=", "revokes"},
		{ed, "v=DKIM1; k=ed25519", "no p= tag"},
		{ed, "v=DKIM1; k=ed25519; p=" + p[:21] + "!", "not base64"},
		{ed, "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", "another key"},
		{ed, "v=DKIM2; k=ed25519; p=" + p, "version"},
		{ed, "v=DKIM1; k=ed25519; h=sha1; p=" + p, "sha256"},
		{ed, "v=DKIM1; k=ed25519; s=tlsrpt; p=" + p, "not for email"},
		{ed, "v=DKIM1; k=ed25519; p=" + p + "; p=" + p, "twice"},
		{ed, "v=spf1 -all", "version"},
		{ed, "hello", "not a list of tags"},
	} {
		testing, err := c.key.Fits(c.record)
		switch {
		case c.want == "testing":
			if !testing || err != nil {
				t.Errorf("%s: %v, %v", c.record, testing, err)
			}
		case c.want == "" && (err != nil || testing), c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.record, err, c.want)
		}
	}
}

// A zone file's strings have 255 octets at most, and together are the record.
func TestZoneLine(t *testing.T) {
	for _, k := range testKeys() {
		line := k.ZoneLine()
		_, rest, _ := strings.Cut(line, ". IN TXT ")
		joined := ""
		for _, part := range strings.Split(strings.Trim(rest, "( )"), " \"") {
			part = strings.Trim(part, `"`)
			if len(part) > 255 {
				t.Errorf("a string of %d octets", len(part))
			}
			joined += part
		}
		if joined != k.Record() || !strings.HasPrefix(line, k.Name()+". IN TXT ") {
			t.Errorf("%s\nis not\n%s", line, k.Record())
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("v=DKIM1; k=rsa; p=")
	f.Fuzz(func(t *testing.T, record string) {
		for _, k := range testKeys() {
			if _, err := k.Fits(record); err == nil && !strings.Contains(record, "p") {
				t.Fatalf("%q fits", record)
			}
		}
	})
}

func FuzzParseKey(f *testing.F) {
	_, text, _ := Generate(Ed25519, 0)
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		if signer, err := ParseKey(text); err == nil {
			if _, err := NewKey("a.example", "s", signer); err != nil {
				t.Fatalf("%q is read and can't be used: %v", text, err)
			}
		}
	})
}
