package mta

import (
	"reflect"
	"testing"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
)

// TestRelaySaysWhereItIs for users who can't read its configuration.
func TestRelaySaysWhereItIs(t *testing.T) {
	run, ready := t.TempDir(), make(chan struct{})
	w := newWorldWith(t, Options{Announce: run, Ready: func(*Relay) { close(ready) }}, sink.Config{}, "")
	<-ready
	for _, dir := range []string{w.cfg.DataDir, run} {
		got, err := config.Announced(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got.Socket != w.cfg.Control.Socket || !reflect.DeepEqual(got.SMTP, w.Status().SMTP) {
			t.Errorf("%s: %+v", dir, got)
		}
	}
}
