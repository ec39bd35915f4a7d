package api

import "testing"

// TestPendingNamesWhatToDo: a reload, a restart, or both, and for what.
func TestPendingNamesWhatToDo(t *testing.T) {
	change := []string{`defaults: connection_limit = 20 (was 10)`}
	restart := []string{`hostname = "b" (was "a"), needs a restart`, `acme: names = ["b"] (new), needs a restart`, `acme: email = "c@d" (new), needs a restart`}
	for _, x := range []struct {
		r    Reload
		want string
	}{
		{Reload{}, ""},
		{Reload{Changes: change}, "the running relay has another configuration than its file: systemctl reload mta"},
		{Reload{Restart: restart}, "these settings wait for a restart: hostname, acme"},
		{Reload{Changes: change, Restart: restart}, "the running relay has another configuration than its file: systemctl restart mta; a reload leaves out hostname, acme"},
	} {
		if got := x.r.Pending(); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}
