package submission

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// listeningIn keeps what is said.
type listeningIn struct {
	mu   sync.Mutex
	said []string
	on   bool
}

func (l *listeningIn) Watched() bool { return l.on }
func (l *listeningIn) Said(s Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	who := "> "
	if s.FromClient {
		who = "< "
	}
	l.said = append(l.said, fmt.Sprintf("%s %s%s", s.Peer.Addr(), who, s.Text))
}

// A session is shown as it was said, without credentials and content.
func TestSessionsAreWatched(t *testing.T) {
	l := &listeningIn{on: true}
	withRelay(t, Config{Watcher: l}, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		p.expect("220")
		p.cmd("HELO app.example.org", "250")
		p.cmd("AUTH PLAIN AGFubgBodW50ZXIy", "502")
		p.cmd("AUTH LOGIN", "502")
		p.send("aHVudGVyMg==\r\n")
		p.got()
		p.data("Subject: my secret\r\n\r\nhunter2\r\n")
		p.cmd("QUIT", "221")
		got := strings.Join(l.said, "\n")
		want := `192.0.2.1 > 220 relay.example.com ESMTP ready
192.0.2.1 < HELO app.example.org
192.0.2.1 > 250 relay.example.com
192.0.2.1 < AUTH PLAIN ***
192.0.2.1 > 502 5.5.1 command not implemented
192.0.2.1 < AUTH LOGIN
192.0.2.1 > 502 5.5.1 command not implemented
192.0.2.1 < ***
192.0.2.1 > 500 5.5.2 command not recognised
192.0.2.1 < MAIL FROM:<a@example.org>
192.0.2.1 > 250 2.1.0 sender ok
192.0.2.1 < RCPT TO:<b@example.net>
192.0.2.1 > 250 2.1.5 recipient ok
192.0.2.1 < DATA
192.0.2.1 > 354 end data with <CR><LF>.<CR><LF>
192.0.2.1 < (31 octets of content)
192.0.2.1 > 250 2.0.0 queued as ` + r.store.one(t).ID.String() + `
192.0.2.1 < QUIT
192.0.2.1 > 221 2.0.0 closing connection`
		if got != want {
			t.Errorf("shown\n%s\nwant\n%s", got, want)
		}
	})
}
