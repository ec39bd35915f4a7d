package auth

import (
	"sync"
	"time"
)

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
