package inbox

import (
	"fmt"
	"testing"
	"time"
)

// Mail from one neighbourhood takes no place of others' mail, however much there is, also after a restart.
func TestAFloodDropsItsOwnMail(t *testing.T) {
	for name, limits := range map[string]FolderLimits{"messages": {Messages: 50, Octets: 1 << 20}, "octets": {Messages: 1000, Octets: 20 << 10}} {
		for _, flood := range []string{"203.0.113.%d", "2001:db9:1:%x::1"} {
			dir := t.TempDir()
			f, err := OpenFolder(dir, limits)
			if err != nil {
				t.Fatal(err)
			}
			now := time.Unix(1_800_000_000, 0)
			add := func(peer, subject string) {
				t.Helper()
				now = now.Add(time.Second)
				if err := f.Add(&KeptMail{Time: now, Peer: peer, Subject: subject}, make([]byte, 200)); err != nil {
					t.Fatal(err)
				}
			}
			add("198.51.100.7", "a genuine complaint")
			for i := range 200 {
				if i == 100 {
					if f, err = OpenFolder(dir, limits); err != nil {
						t.Fatal(err)
					}
				}
				add(fmt.Sprintf(flood, i), "flood")
			}
			list, err := f.List(0, 1000)
			if err != nil || len(list) < 40 || list[len(list)-1].Subject != "a genuine complaint" || list[0].Subject != "flood" {
				t.Errorf("%s, %s: %d kept, the oldest is %q, %v", name, flood, len(list), list[len(list)-1].Subject, err)
			}
		}
	}
}
