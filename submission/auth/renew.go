package auth

import (
	"sync"
	"time"
)

// renewEvery is how often hashes that were made anew are written: once for all of them.
const renewEvery = time.Second

// renewer writes hashes that were made anew into the users file. A file that it can't write keeps the
// old ones, which stay good.
type renewer struct {
	file File
	done func(error) // is told how it went; may be nil

	soon later

	mu  sync.Mutex // guards what follows
	new map[string]renewal

	// was has the hashes that were replaced, and by what: a session that logged in with the one is
	// still its user's.
	was map[string]renewal
}

func newRenewer(file File, done func(error)) *renewer {
	r := &renewer{file: file, done: done}
	r.soon.after, r.soon.do = renewEvery, r.write
	return r
}

type renewal struct{ from, to Hash }

// add takes a hash to be written soon.
func (r *renewer) add(name string, from, to Hash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.new == nil {
		r.new = make(map[string]renewal)
	}
	if r.was == nil {
		r.was = make(map[string]renewal)
	}
	r.new[name], r.was[name] = renewal{from, to}, renewal{from, to}
	r.soon.soon()
}

// tried reports whether a user's hash has been made anew: it is about to be written, or could not be.
func (r *renewer) tried(name, hash string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.was[name]
	return ok && w.from.String() == hash
}

// same reports whether two hashes of a user are of one password: one was made anew from the other, which
// the file may still have.
func (r *renewer) same(name, a, b string) bool {
	if a == b {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.was[name]
	from, to := w.from.String(), w.to.String()
	return ok && (a == from && b == to || a == to && b == from)
}

func (r *renewer) write() {
	r.mu.Lock()
	all := r.new
	r.new = nil
	r.mu.Unlock()
	if len(all) == 0 {
		return
	}
	err := r.file.UpdateUsers(func(t *UserTable) error {
		for name, h := range all {
			// Who was changed meanwhile keeps the change.
			if u := t.User(name); u != nil && u.Hash.String() == h.from.String() {
				t.renewHash(name, h.to)
			}
		}
		return nil
	})
	r.done(err)
}

// later does something once for all who ask for it within a time. Close does it at once, and waits for it.
type later struct {
	after time.Duration
	do    func()

	mu     sync.Mutex // guards what follows
	timer  *time.Timer
	closed bool
	doing  sync.WaitGroup
}

// soon asks for it.
func (l *later) soon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.timer != nil {
		return
	}
	l.doing.Add(1)
	l.timer = time.AfterFunc(l.after, l.now)
}

func (l *later) now() {
	defer l.doing.Done()
	l.mu.Lock()
	l.timer = nil
	l.mu.Unlock()
	l.do()
}

func (l *later) close() {
	l.mu.Lock()
	l.closed = true
	early := l.timer != nil && l.timer.Stop()
	l.mu.Unlock()
	if early {
		l.now()
	}
	l.doing.Wait()
}
