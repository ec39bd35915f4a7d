package api_test

import (
	"os/user"
	"path/filepath"
	"runtime"
	"testing"

	"example.org/mta/operator/api"
)

// TestAPauseIsByWhoAsks: the system says whose process that is, whatever it claims.
func TestAPauseIsByWhoAsks(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" && runtime.GOOS != "freebsd" {
		t.Skip("this system does not say")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := api.NewServer(api.Config{Rules: pausing{}})
	path := filepath.Join(t.TempDir(), "s")
	l, err := api.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Shutdown(t.Context())
		<-served
	})
	done, err := api.OpAddRule.Call(t.Context(), api.NewClient(path), api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{All: true}, By: "somebody else"})
	if err != nil || done.By != me.Username {
		t.Errorf("paused by %q, want %q (%v)", done.By, me.Username, err)
	}
}
