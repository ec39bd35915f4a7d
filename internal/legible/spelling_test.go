package legible

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"relay_from", "tls", "max_recipients", "address", "a", "mx"}
	for given, want := range map[string]string{
		"relay_form": "relay_from", "adress": "address", "maxrecipients": "max_recipients", "tsl": "tls", "TLS": "", "xyzzy": "", "": "", "x": "", "my": "",
	} {
		if got := Nearest(given, names); got != want {
			t.Errorf("%q: guessed %q, want %q", given, got, want)
		}
	}
}
