package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/testca"
)

// TestEachFileOfCertificatesIsWarnedOf: whatever the configuration names, expired or not for long, and nothing else.
func TestEachFileOfCertificatesIsWarnedOf(t *testing.T) {
	ca := testca.New(t) // for a day, as what it issues
	soon, soonKey := testca.Files(t, ca.Issue(t, []string{"mx.example"}))
	old, oldKey := testca.Files(t, ca.Issue(t, []string{"mx.example"}, testca.Expired))
	authority := ca.File(t)
	now := time.Now()
	cfg := parsed(t, fmt.Sprintf(`hostname = "relay.example"
data_dir = "%[1]s"
keys { file = "%[1]s/keys" }
users { file = "%[1]s/logins" }
listener "in" {
  address = "127.0.0.1:2525"
  tls {
    certificate         = "%[2]s"
    key                 = "%[3]s"
    client_certificates = true
    client_ca           = "%[6]s"
  }
}
api "web" {
  address = "127.0.0.1:8443"
  tls {
    certificate = "%[4]s"
    key         = "%[5]s"
  }
}
console {
  address = "127.0.0.1:8026"
  users   = "%[1]s/users"
  tls {
    certificate = "%[4]s"
    key         = "%[5]s"
  }
}
domain "partner.example" {
  tls             = "required"
  tls_certificate = "%[4]s"
  tls_key         = "%[5]s"
  tls_ca          = "%[6]s"
}
stream "app" {
  to = "https://app.example/hook"
  ca = "%[6]s"
}
`, t.TempDir(), soon, soonKey, old, oldKey, authority))
	day := func(at time.Time) string { return at.UTC().Format(time.DateOnly) }
	end, ended := " expires on "+day(ca.Certificate.NotAfter)+": ", " expired on "+day(now.Add(-time.Hour))+": "
	want := []string{
		`listener "in" `, soon + end, `listener "in" `, authority + end, `api "web" `, old + ended, "console ", old + ended,
		`domain "partner.example" `, old + ended, `domain "partner.example" `, authority + end, `stream "app" `, authority + end,
	}
	got := certificateWarnings(cfg, now)
	if len(got) != len(want)/2 {
		t.Fatalf("%d warnings:\n%s", len(got), strings.Join(got, "\n"))
	}
	for i, w := range got {
		if !strings.HasPrefix(w, want[2*i]) || !strings.Contains(w, want[2*i+1]) {
			t.Errorf("warning %d is %q, want %q and %q", i, w, want[2*i], want[2*i+1])
		}
		if restart := want[2*i+1] == authority+end && !strings.HasPrefix(w, "domain"); strings.Contains(w, "restart") != restart || strings.Contains(w, "by itself") == restart {
			t.Errorf("the remedy of %q: does it take a restart? want %v", w, restart)
		}
	}
	if got := certificateWarnings(cfg, now.Add(-20*24*time.Hour)); len(got) != 0 {
		t.Errorf("20 days before: %q", got)
	}
}
