package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/smallfile"
)

// A user who logs in from where it logged in before is known there: its right password is taken
// without being hashed for some minutes, and nobody's guesses elsewhere slow it down.
const (
	verifiedFor = 10 * time.Minute
	knownFor    = 24 * time.Hour
	// wrongWhenKnown is how many wrong passwords end that: guesses from the same network.
	wrongWhenKnown = 5
	maxKnown       = 100_000
)

// place is a user and the network that it comes from.
type place struct {
	user    string
	network netip.Prefix
}

type acquaintance struct {
	sum      [sha256.Size]byte // keyed, of the password and its hash
	verified time.Time         // until when sum counts
	until    time.Time
	wrong    int       // passwords since the last right one
	kept     time.Time // when it was to be written down last
}

// known remembers who has logged in from where. Passwords are kept as a keyed hash: the key is of
// this process and nowhere on a disk, and neither are the hashes.
type known struct {
	now  func() time.Time
	key  [32]byte
	file *knownFile

	mu       sync.Mutex // guards what follows
	by       map[place]*acquaintance
	networks map[netip.Prefix]time.Time // until when somebody is known there
}

// newKnown begins with what file has.
func newKnown(now func() time.Time, file *knownFile) *known {
	k := &known{now: now, file: file, by: make(map[place]*acquaintance), networks: make(map[netip.Prefix]time.Time)}
	rand.Read(k.key[:])
	file.write.do = func() { file.replace(k.all()) }
	at := now()
	for _, x := range file.read(at) {
		until := x.Until
		if latest := at.Add(knownFor); until.After(latest) { // the clock was wrong
			until = latest
		}
		if !at.Before(until) || len(k.by) >= maxKnown {
			continue
		}
		k.by[place{x.User, x.Network}] = &acquaintance{until: until}
		if until.After(k.networks[x.Network]) {
			k.networks[x.Network] = until
		}
	}
	return k
}

// all lists who is known where.
func (k *known) all() (list []knownPlace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	for p, a := range k.by {
		if now.Before(a.until) {
			list = append(list, knownPlace{p.user, p.network, a.until})
		}
	}
	return list
}

// at reports whether a user is known at a place.
func (k *known) at(p place) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.by[p]
	return a != nil && !k.now().After(a.until)
}

func (k *known) sum(hash, password string) (out [sha256.Size]byte) {
	m := hmac.New(sha256.New, k.key[:])
	m.Write([]byte(hash))
	m.Write([]byte{0}) // no hash has a NUL
	m.Write([]byte(password))
	m.Sum(out[:0])
	return out
}

// has reports whether a user is known at a place, and whether it has just that password there, which
// was verified lately against hash.
func (k *known) has(p place, hash, password string) (here, right bool) {
	sum := k.sum(hash, password)
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.by[p]
	now := k.now()
	if a == nil || now.After(a.until) {
		return false, false
	}
	if now.Before(a.verified) && hmac.Equal(sum[:], a.sum[:]) {
		a.wrong = 0
		return true, true
	}
	return true, false
}

// right notes a password that is the user's.
func (k *known) right(p place, hash, password string) {
	sum := k.sum(hash, password)
	k.mu.Lock()
	defer k.mu.Unlock()
	a, now := k.metAt(p), k.now()
	a.sum, a.verified = sum, now.Add(verifiedFor)
}

// met notes a login without a password.
func (k *known) met(p place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.metAt(p)
}

// metAt notes a login of a user at a place. The caller holds the lock.
func (k *known) metAt(p place) *acquaintance {
	now := k.now()
	k.metFrom(p.network, now)
	a := k.by[p]
	if a == nil {
		if len(k.by) >= maxKnown {
			for any := range k.by { // it is only slower for whoever that is
				delete(k.by, any)
				break
			}
		}
		a = &acquaintance{}
		k.by[p] = a
	}
	a.wrong, a.until = 0, now.Add(knownFor)
	if now.Sub(a.kept) >= keepEvery {
		a.kept = now
		k.file.write.soon()
	}
	return a
}

// metFrom notes a login from a network. The caller holds the lock.
func (k *known) metFrom(network netip.Prefix, now time.Time) {
	if _, there := k.networks[network]; !there && len(k.networks) >= maxKnown {
		for any := range k.networks {
			delete(k.networks, any)
			break
		}
	}
	k.networks[network] = now.Add(knownFor)
}

// from reports whether somebody is known at a network.
func (k *known) from(network netip.Prefix) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now().Before(k.networks[network])
}

// wrong notes a password that is not the user's.
func (k *known) wrong(p place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a := k.by[p]; a != nil {
		if a.wrong++; a.wrong >= wrongWhenKnown {
			delete(k.by, p)
			delete(k.networks, p.network) // until the next login
			k.file.write.soon()
		}
	}
}

// Who has logged in from where outlives the process, so that guesses which go on over a restart keep nobody
// out. A kill loses what was new in the last minute.
const (
	writeKnown = time.Minute // how long what is new may be in memory only
	keepEvery  = time.Hour   // how exact the file is about the last login
	// maxKept is how many places the file has, those with the newest logins: 2 MB.
	maxKept      = 20_000
	maxKnownFile = 64 << 20
	knownVersion = 1
)

// knownPlace is a user at a network, as it is in the file. No secret is there.
type knownPlace struct {
	User    string       `json:"user"`
	Network netip.Prefix `json:"network"`
	Until   time.Time    `json:"until"`
}

// knownHeader is the file's first line; the second is the list, of which it has the SHA-256.
type knownHeader struct {
	Version int    `json:"version"`
	Sum     string `json:"sum"`
}

// knownFile is the file with the places.
type knownFile struct {
	path  string
	log   *slog.Logger
	write later
}

func newKnownFile(path string, log *slog.Logger) *knownFile {
	f := &knownFile{path: path, log: log}
	f.write.after = writeKnown
	f.write.closed = path == ""
	return f
}

// read gives the places of the file. One that can't be used is set aside: all that is lost is that guesses elsewhere
// may slow a user down until its next login.
func (f *knownFile) read(now time.Time) []knownPlace {
	if f.path == "" {
		return nil
	}
	list, err := readKnown(f.path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return list
	}
	aside, moved := smallfile.SetAside(f.path, now)
	err = errors.Join(err, moved)
	f.log.Error("the networks that users have logged in from can't be read: they are learned again with the next "+
		"logins; the file was set aside",
		"file", aside, "error", err)
	return nil
}

func readKnown(path string) (list []knownPlace, err error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxKnownFile))
	if err != nil {
		return nil, err
	}
	head, body, _ := bytes.Cut(text, []byte{'\n'})
	var h knownHeader
	switch err := json.Unmarshal(head, &h); {
	case err != nil:
		return nil, err
	case h.Version != knownVersion:
		return nil, fmt.Errorf("its format is version %d, and this mta reads version %d", h.Version, knownVersion)
	case h.Sum != sumOf(body):
		return nil, errors.New("its sum is wrong")
	}
	return list, json.Unmarshal(body, &list)
}

func sumOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// replace writes the file anew.
func (f *knownFile) replace(list []knownPlace) {
	slices.SortFunc(list, func(a, b knownPlace) int { return b.Until.Compare(a.Until) })
	body, err := json.Marshal(list[:min(len(list), maxKept)])
	if err == nil {
		body = append(body, '\n')
		err = smallfile.Replace(f.path, 0o600, func(w io.Writer) error {
			if err := json.NewEncoder(w).Encode(knownHeader{knownVersion, sumOf(body)}); err != nil {
				return err
			}
			_, err := w.Write(body)
			return err
		})
	}
	if err != nil {
		f.log.Warn("the networks that users have logged in from can't be written: they are written again with the "+
			"next login from another",
			"file", f.path, "error", err)
	}
}
