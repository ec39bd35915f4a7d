package auth

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-crypt/x/crypt"
	"github.com/xdg-go/scram"
	"github.com/xdg-go/stringprep"
	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
)

// Scheme is how a password is hashed.
type Scheme string

const (
	Argon2id    Scheme = "argon2id"      // RFC 9106
	SchemeSCRAM Scheme = "scram-sha-256" // what SCRAM-SHA-256 needs (RFC 5802, 7677); PLAIN and LOGIN work with it, too
	Bcrypt      Scheme = "bcrypt"        // taken, never made
	SHA512Crypt Scheme = "sha512-crypt"  // taken, never made
)

// What a new hash costs. Argon2id has the smaller memory of the choices that OWASP recommends: it
// takes about 30 ms, and a few at once are no burden for a relay's memory. SCRAM's iterations are
// the client's work at each login; the server does them once for each change of a password, and for
// PLAIN.
const (
	argonTime    = 2
	argonMemory  = 19 << 10 // KiB
	argonThreads = 1
	saltSize     = 16
	keySize      = 32
)

var iterations = 100_000 // of SCRAM; tests have fewer

// Bounds of hashes that people bring: one that takes minutes to check, or gigabytes, is a mistake or
// an attack.
const (
	maxArgonTime    = 16
	maxArgonMemory  = 256 << 10 // KiB
	maxArgonThreads = 16
	maxBcryptCost   = 15
	maxRounds       = 1_000_000 // of SHA-512-crypt
	minIterations   = 4096      // RFC 7677, 4
	maxIterations   = 2_000_000
	maxHash         = 1024 // octets of its text
	// MaxPassword is the longest password, in octets.
	MaxPassword = 1024
)

// Hash is what a password is checked against. The zero Hash accepts none.
type Hash struct {
	Scheme Scheme
	text   string

	salt, key []byte // of Argon2id and SHA-512-crypt
	time      uint32 // of Argon2id; the rounds of SHA-512-crypt
	memory    uint32 // KiB
	threads   uint8
	scram     scram.StoredCredentials
}

// String gives the text that ParseHash reads.
func (h Hash) String() string { return h.text }

// prefixes are Dovecot's names of schemes, which may stand before a hash in braces. True: the hash
// needs it.
var prefixes = map[string]bool{"ARGON2ID": false, "BLF-CRYPT": false, "SHA512-CRYPT": false, "CRYPT": false,
	"SCRAM-SHA-256": true}

// ParseHash reads a hash as crypt(3), PHP, Dovecot and their like write it.
func ParseHash(text string) (Hash, error) {
	if text == "" {
		return Hash{}, nil
	}
	if len(text) > maxHash {
		return Hash{}, fmt.Errorf("the hash is longer than %d octets", maxHash)
	}
	h, body := Hash{text: text}, text
	scheme := ""
	if strings.HasPrefix(text, "{") {
		name, rest, ok := strings.Cut(text[1:], "}")
		scheme, body = strings.ToUpper(name), rest
		if _, known := prefixes[scheme]; !ok || !known {
			return Hash{}, errUnknownHash
		}
	}
	var err error
	switch {
	case scheme == "SCRAM-SHA-256":
		err = h.parseSCRAM(body)
	case strings.HasPrefix(body, "$argon2id$"):
		err = h.parseArgon(body)
	case strings.HasPrefix(body, "$2a$"), strings.HasPrefix(body, "$2b$"), strings.HasPrefix(body, "$2y$"):
		err = h.parseBcrypt(body)
	case strings.HasPrefix(body, "$6$"):
		err = h.parseSHA512(body)
	default:
		err = errUnknownHash
	}
	if err != nil {
		return Hash{}, err
	}
	return h, nil
}

var (
	errUnknownHash = errors.New(
		"the hash is of no known kind: there are argon2id, bcrypt, SHA-512-crypt ($6$) and {SCRAM-SHA-256}")
	errBadHash = errors.New("the hash is malformed")
)

// parseArgon reads "$argon2id$v=19$m=19456,t=2,p=1$salt$key".
func (h *Hash) parseArgon(body string) error {
	parts := strings.Split(body, "$")
	if len(parts) != 6 || parts[2] != "v=19" {
		return errBadHash
	}
	costs := strings.Split(parts[3], ",")
	if len(costs) != 3 {
		return errBadHash
	}
	var n [3]int
	for i, name := range []string{"m=", "t=", "p="} {
		digits, ok := strings.CutPrefix(costs[i], name)
		v, err := strconv.ParseUint(digits, 10, 31)
		if !ok || err != nil || v == 0 {
			return errBadHash
		}
		n[i] = int(v)
	}
	if n[0] > maxArgonMemory || n[1] > maxArgonTime || n[2] > maxArgonThreads {
		return fmt.Errorf("the argon2id hash costs too much: at most m=%d, t=%d, p=%d are taken", maxArgonMemory,
			maxArgonTime, maxArgonThreads)
	}
	h.Scheme, h.memory, h.time, h.threads = Argon2id, uint32(n[0]), uint32(n[1]), uint8(n[2])
	var err1, err2 error
	h.salt, err1 = base64.RawStdEncoding.DecodeString(parts[4])
	h.key, err2 = base64.RawStdEncoding.DecodeString(parts[5])
	if err1 != nil || err2 != nil || len(h.salt) < 8 || len(h.key) < 16 {
		return errBadHash
	}
	return nil
}

func (h *Hash) parseBcrypt(body string) error {
	cost, err := bcrypt.Cost([]byte(body))
	switch {
	case err != nil || len(body) != 60:
		return errBadHash
	case cost > maxBcryptCost:
		return fmt.Errorf("the bcrypt hash costs too much: at most %d is taken", maxBcryptCost)
	}
	h.Scheme, h.key = Bcrypt, []byte(body)
	return nil
}

// parseSHA512 reads "$6$rounds=5000$salt$key".
func (h *Hash) parseSHA512(body string) error {
	parts := strings.Split(body, "$")[2:]
	h.Scheme, h.time = SHA512Crypt, 5000
	if digits, ok := strings.CutPrefix(parts[0], "rounds="); ok {
		rounds, err := strconv.ParseUint(digits, 10, 31)
		switch {
		case err != nil || rounds < 1000:
			return errBadHash
		case rounds > maxRounds:
			return fmt.Errorf("the SHA-512-crypt hash costs too much: at most %d rounds are taken", maxRounds)
		}
		h.time, parts = uint32(rounds), parts[1:]
	}
	if len(parts) != 2 || len(parts[0]) > 16 || len(parts[1]) != 86 {
		return errBadHash
	}
	h.salt, h.key = []byte(parts[0]), []byte(parts[1])
	return nil
}

// parseSCRAM reads "iterations,salt,StoredKey,ServerKey", as Dovecot writes it.
func (h *Hash) parseSCRAM(body string) error {
	parts := strings.Split(body, ",")
	if len(parts) != 4 {
		return errBadHash
	}
	n, err := strconv.Atoi(parts[0])
	if err != nil || n < minIterations || n > maxIterations {
		return fmt.Errorf("SCRAM-SHA-256 has %d to %d iterations here", minIterations, maxIterations)
	}
	var raw [3][]byte
	for i := range raw {
		if raw[i], err = base64.StdEncoding.DecodeString(parts[i+1]); err != nil {
			return errBadHash
		}
	}
	if len(raw[0]) < 8 || len(raw[1]) != sha256.Size || len(raw[2]) != sha256.Size {
		return errBadHash
	}
	h.Scheme = SchemeSCRAM
	h.scram = scram.StoredCredentials{KeyFactors: scram.KeyFactors{Salt: string(raw[0]), Iters: n}, StoredKey: raw[1],
		ServerKey: raw[2]}
	return nil
}

// Credentials is what the SCRAM-SHA-256 mechanism needs; false when the hash is of another scheme.
func (h Hash) Credentials() (scram.StoredCredentials, bool) { return h.scram, h.Scheme == SchemeSCRAM }

// Verify reports whether it is the hash of a password. It takes milliseconds, and with Argon2id
// megabytes.
func (h Hash) Verify(password string) bool {
	if len(password) > MaxPassword {
		password = "" // which is never right
	}
	switch h.Scheme {
	case Argon2id:
		key := argon2.IDKey([]byte(Prepare(password)), h.salt, h.time, h.memory, h.threads, uint32(len(h.key)))
		return equal(key, h.key) && password != ""
	case SchemeSCRAM:
		stored, _, err := scramKeys(Prepare(password), h.scram.KeyFactors)
		return err == nil && equal(stored, h.scram.StoredKey) && password != ""
	case Bcrypt: // made elsewhere, without SASLprep
		return bcrypt.CompareHashAndPassword(h.key, []byte(password)) == nil && password != ""
	case SHA512Crypt:
		return equal(crypt.KeySHACrypt(sha512.New, []byte(password), h.salt, int(h.time)), h.key) && password != ""
	}
	return false
}

func equal(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

// Is reports whether the hash is what NewHash would make today; if not, it is made anew when the
// password is known.
func (h Hash) Is(s Scheme) bool {
	switch {
	case h.Scheme != s:
		return false
	case s == Argon2id:
		return h.time == argonTime && h.memory == argonMemory && h.threads == argonThreads
	}
	return h.scram.Iters == iterations
}

// NewHash hashes a password by a scheme.
func NewHash(s Scheme, password string) (Hash, error) {
	if err := CheckPassword(password); err != nil {
		return Hash{}, err
	}
	password = Prepare(password)
	salt := make([]byte, saltSize)
	rand.Read(salt)
	switch s {
	case Argon2id:
		key := argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, keySize)
		b64 := base64.RawStdEncoding
		return ParseHash(fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$%s$%s", argonMemory, argonTime, argonThreads,
			b64.EncodeToString(salt), b64.EncodeToString(key)))
	case SchemeSCRAM:
		stored, server, err := scramKeys(password, scram.KeyFactors{Salt: string(salt), Iters: iterations})
		if err != nil {
			return Hash{}, err
		}
		b64 := base64.StdEncoding
		return ParseHash(fmt.Sprintf("{SCRAM-SHA-256}%d,%s,%s,%s", iterations, b64.EncodeToString(salt),
			b64.EncodeToString(stored), b64.EncodeToString(server)))
	}
	return Hash{}, fmt.Errorf("no password is hashed by %q: there are %q and %q", s, Argon2id, SchemeSCRAM)
}

// scramKeys derives what a server keeps (RFC 5802, 3).
func scramKeys(password string, f scram.KeyFactors) (stored, server []byte, err error) {
	salted, err := pbkdf2.Key(sha256.New, password, []byte(f.Salt), f.Iters, sha256.Size)
	if err != nil {
		return nil, nil, err
	}
	mac := func(text string) []byte {
		m := hmac.New(sha256.New, salted)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	sum := sha256.Sum256(mac("Client Key"))
	return sum[:], mac("Server Key"), nil
}

// Prepare puts a password in the form that is hashed (RFC 4013, SASLprep), or leaves it as it is where
// that has none.
func Prepare(s string) string {
	if p, err := stringprep.SASLprep.Prepare(s); err == nil {
		return p
	}
	return s
}

// CheckPassword returns what is wrong with a new password. It never quotes it.
func CheckPassword(password string) error {
	switch {
	case password == "":
		return errors.New("the password is empty")
	case len(password) > MaxPassword:
		return fmt.Errorf("the password has more than %d octets", MaxPassword)
	case strings.ContainsRune(password, 0):
		return errors.New("the password has a NUL character")
	}
	if _, err := stringprep.SASLprep.Prepare(password); err != nil {
		return errors.New(
			"the password has characters that clients prepare in different ways, as control characters, unassigned " +
				"ones, or right-to-left text mixed with other (RFC 4013)")
	}
	return nil
}
