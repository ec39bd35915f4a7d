// Package secrets has each node of a cluster accept the tokens that the others make, such as links to unsubscribe.
//
// Each node goes on to make tokens by secrets in files of its own, and accepts those of all nodes. Secrets are only
// ever added: a token that was sent is good whatever becomes of its node, and two nodes can't contradict each other. A
// node keeps all in one file in its data directory, and sends all again at each start, so that a row that was lost, or
// is encrypted under an older key, is replaced.
//
// What goes to the engine is encrypted: see Keys.
package secrets

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/smallfile"
)

const (
	// Size of a secret in octets.
	Size = 32
	// Most is how many secrets a node keeps of all nodes.
	Most = 5000

	format = 1
)

// Config is what a Store works with.
type Config struct {
	Path string // of the file
	// Keys encrypt what is shared, and Note notes what is about to be: see exchange.Exchange. Without them the secrets
	// in the file are accepted, and nothing is shared.
	Keys *Keys
	Note func(keys []string) (done func(), err error)
	Now  func() time.Time
	Log  *slog.Logger
}

// Store is the secrets of all nodes. It implements changes.Kind, and is safe for concurrent use.
type Store struct {
	cfg Config

	mu    sync.Mutex        // guards what follows
	all   map[string][]byte // by key, which is a name, a slash and the sum of the secret
	users map[string]user   // by name
}

// user accepts tokens.
type user struct {
	own    [][]byte
	accept func(others [][]byte) error
}

// contents are those of the file.
type contents struct {
	Format  int               `json:"format"`
	Secrets map[string]string `json:"secrets"` // hexadecimal digits by key
}

// Open reads the file, and notes all that is in it.
func Open(cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, users: make(map[string]user)}
	f := smallfile.Twin[contents]{
		Path: cfg.Path, Name: "the secrets of the cluster's nodes", Now: cfg.Now(), Log: cfg.Log,
		Write: func(c contents) error {
			if c.Format != format {
				return errFormat(c.Format)
			}
			return write(cfg.Path, c)
		},
		Lost: func() (c contents, then, remedy string) {
			return contents{Format: format}, "they are read again from the cluster's database",
				"without a cluster restore the file from a backup: tokens of other nodes are refused"
		},
	}
	c, err := f.Read()
	if err == nil {
		s.all, err = c.parse()
	}
	if err != nil {
		return nil, fmt.Errorf("the secrets of the cluster's nodes, %s: %w", cfg.Path, err)
	}
	return s, s.noted(slices.Sorted(maps.Keys(s.all)), nil)
}

func (c contents) parse() (map[string][]byte, error) {
	all := make(map[string][]byte)
	if c.Format != format && c.Format != 0 { // 0: there is no file
		return nil, errFormat(c.Format)
	}
	for key, text := range c.Secrets {
		secret, err := hex.DecodeString(text)
		if err != nil || check(key, secret) != nil {
			return nil, fmt.Errorf("secret %q is damaged: restore the file from a backup, or move it and its second "+
				"copy away", key)
		}
		all[key] = secret
	}
	return all, nil
}

func errFormat(n int) error {
	return fmt.Errorf("it has format %d, and this program knows %d: use the program that wrote it", n, format)
}

// write replaces the file and its second copy.
func write(path string, c contents) error { return smallfile.WriteTwin(path, 0o600, c) }

// Existing returns the secrets of a name in a file, none if there is no file, for who only looks.
func Existing(path, name string) ([][]byte, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	var all map[string][]byte
	if err == nil {
		var c contents
		if _, err = smallfile.Unmarshal(text, &c); err == nil {
			all, err = c.parse()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the secrets of the cluster's nodes, %s: %w", path, err)
	}
	return others(all, name, nil), nil
}

// Key is that of a secret under a name.
func Key(name string, secret []byte) string {
	sum := sha256.Sum256(append([]byte("mta cluster secret "+name+" "), secret...))
	return name + "/" + hex.EncodeToString(sum[:16])
}

// check returns why a secret can't be under a key.
func check(key string, secret []byte) error {
	name, _, _ := strings.Cut(key, "/")
	switch {
	case len(secret) != Size:
		return fmt.Errorf("the secret has %d octets, not %d: somebody has edited it", len(secret), Size)
	case name == "" || Key(name, secret) != key:
		return errors.New("it is not the secret of its key: somebody has edited it")
	}
	return nil
}

// Empty reports whether there are no secrets, as after the file was lost.
func (s *Store) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) == 0
}

// Join shares the secrets of a name by which this node makes tokens, and has accept called with those of the others,
// at once and whenever there are more. A later call for the name replaces the first. accept must not use the Store.
func (s *Store) Join(name string, accept func(others [][]byte) error, own ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[name] = user{own, accept}
	if s.cfg.Note != nil {
		next, fresh := maps.Clone(s.all), []string(nil)
		for _, secret := range own {
			key := Key(name, secret)
			if err := check(key, secret); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if next[key] == nil {
				next[key], fresh = secret, append(fresh, key)
			}
		}
		if err := s.noted(fresh, next); err != nil {
			return err
		}
	}
	return accept(others(s.all, name, own))
}

// noted notes keys, and writes what there is then; nil: as before. The caller has mu, or nobody else has the Store.
func (s *Store) noted(keys []string, next map[string][]byte) error {
	if len(keys) == 0 || s.cfg.Note == nil {
		return nil
	}
	done, err := s.cfg.Note(keys)
	if err != nil {
		return err
	}
	defer done()
	if next == nil {
		return nil
	}
	return s.set(next)
}

// set replaces what there is, on the disk first. The caller has mu.
func (s *Store) set(next map[string][]byte) error {
	c := contents{format, make(map[string]string)}
	for key, secret := range next {
		c.Secrets[key] = hex.EncodeToString(secret)
	}
	if err := write(s.cfg.Path, c); err != nil {
		return fmt.Errorf("writing down the secrets of the cluster's nodes: %w", err)
	}
	s.all = next
	return nil
}

// others are the secrets of a name that are not a node's own, in a fixed order.
func others(all map[string][]byte, name string, own [][]byte) (some [][]byte) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		mine := func(o []byte) bool { return bytes.Equal(o, all[key]) }
		if strings.HasPrefix(key, name+"/") && !slices.ContainsFunc(own, mine) {
			some = append(some, all[key])
		}
	}
	return some
}

// open decrypts the value of a key.
func (s *Store) open(key string, value []byte) ([]byte, error) {
	secret, err := s.cfg.Keys.Open(key, value)
	if err == nil {
		err = check(key, secret)
	}
	return secret, err
}

// All implements changes.Kind.
func (s *Store) All(_ context.Context, each func(keys []string) error) error {
	s.mu.Lock()
	keys := slices.Sorted(maps.Keys(s.all))
	s.mu.Unlock()
	return each(keys)
}

// Get implements changes.Kind.
func (s *Store) Get(_ context.Context, keys []string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := make(map[string][]byte)
	for _, key := range keys {
		if secret := s.all[key]; secret != nil {
			values[key] = s.cfg.Keys.Seal(key, secret)
		}
	}
	return values, nil
}

// Look implements changes.Kind: a secret never ends.
func (s *Store) Look(key string, value []byte) (rank int, until time.Time, err error) {
	_, err = s.open(key, value)
	return 1, until, err
}

// Apply implements changes.Kind. Removals are undone: no node makes any, so somebody has edited the row.
func (s *Store) Apply(_ context.Context, values map[string][]byte, stays func(key string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, names, again := maps.Clone(s.all), make(map[string]bool), []string(nil)
	for key, value := range values {
		name, _, _ := strings.Cut(key, "/")
		switch {
		case next[key] != nil && value == nil && !stays(key):
			again = append(again, key)
		case next[key] != nil || value == nil:
		case len(next) >= Most:
			s.cfg.Log.Error("a secret of another node is left out: there are too many", "name", name, "most", Most)
		default:
			secret, err := s.open(key, value)
			if err != nil {
				return err
			}
			next[key], names[name] = secret, true
		}
	}
	if len(names) > 0 {
		if err := s.set(next); err != nil {
			return err
		}
	}
	for name := range names {
		if u, is := s.users[name]; is {
			if err := u.accept(others(s.all, name, u.own)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	slices.Sort(again)
	return s.noted(again, nil)
}
