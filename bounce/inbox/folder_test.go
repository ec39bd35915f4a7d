package inbox

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A flood from more networks than the folder has places for, each with one letter, deletes none of the few that came
// before, though several of those are of one network; and after it new mail is kept. Without a flood the oldest goes.
func TestAFloodFromManyNetworks(t *testing.T) {
	dir := t.TempDir()
	f, err := OpenFolder(dir, FolderLimits{Messages: 100, Octets: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	add := func(after time.Duration, peer, subject string) {
		t.Helper()
		now = now.Add(after)
		if err := f.Add(&KeptMail{Time: now, Peer: peer, Subject: subject}, make([]byte, 200)); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() (subjects []string) {
		list, err := f.List(0, 1000)
		if err != nil || len(list) > 100 {
			t.Fatalf("%d kept, %v", len(list), err)
		}
		for _, k := range list {
			subjects = append(subjects, k.Subject)
		}
		return subjects
	}
	genuine := []string{"complaint 0", "complaint 1", "complaint 2"}
	for i, subject := range genuine {
		add(10*time.Minute, fmt.Sprintf("198.51.100.%d", i), subject)
	}
	for i := range 2000 {
		add(7*time.Millisecond, fmt.Sprintf("10.%d.%d.1", i/256, i%256), "flood")
	}
	add(time.Second, "192.0.2.1", "complaint 3")
	for _, subject := range append(genuine, "complaint 3") {
		if !slices.Contains(kept(), subject) {
			t.Errorf("%s is lost", subject)
		}
	}
	for i := range 300 {
		add(time.Hour, fmt.Sprintf("172.16.%d.1", i%256), fmt.Sprint("later ", i))
	}
	got := kept()
	for i := range 95 { // the others are the last of a night without mail
		if want := fmt.Sprint("later ", 299-i); got[i] != want {
			t.Fatalf("%d: %s, want %s", i, got[i], want)
		}
	}
}

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
