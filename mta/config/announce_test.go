package config

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestAnnouncementIsReadAsWritten(t *testing.T) {
	dir := t.TempDir()
	w := Whereabouts{Hostname: "relay.example", DataDir: "/d", Socket: "/d/control.sock", Accounting: "/d/log", SMTP: []string{"127.0.0.1:25"}}
	for range 2 { // the second takes the place of the first
		if err := Announce(dir, w); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Announced(dir)
	if err != nil || !reflect.DeepEqual(got, w) {
		t.Errorf("got %+v, %v", got, err)
	}
	info, err := os.Stat(filepath.Join(dir, announcement))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v: everybody is to read it", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
