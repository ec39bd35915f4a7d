package config

import (
	"fmt"
	"strings"
	"testing"

	"example.org/mta/internal/settings"
	"example.org/mta/mta/events"
)

// TestSecretsOfAStream: a list of secrets is compared by value, and never shown.
func TestSecretsOfAStream(t *testing.T) {
	read := func(secret string) *Config {
		c, err := Parse([]byte(`stream "app" {
			to      = "https://app.example.com/"
			secrets = ["`+secret+`"]
			headers = ["Authorization: Bearer `+secret+`"]
		}`), "mta.conf", noEnv)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := read("whsec_hunter2hunter2hunter2hunter2hunter2"), read("whsec_hunter3hunter3hunter3hunter3hunter3")
	if changes := settings.Diff(a, b); len(changes) != 2 {
		t.Errorf("another secret and another header are %d changes: %v", len(changes), changes)
	}
	if shown := string(Effective(a)); strings.Contains(shown, "hunter2") {
		t.Errorf("a secret is shown:\n%s", shown)
	}
}

// TestSecretsThatAreNoKeys: each format has its kind of key, and the problem names the remedy without the secret.
func TestSecretsThatAreNoKeys(t *testing.T) {
	shared := events.NewShared()
	ecdsa, err := events.NewSendGridKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		format  string
		secrets []string
		good    bool
	}{
		{"records", []string{shared}, true},
		{"records", []string{shared, events.NewPrivate()}, true},
		{"cloudevents", []string{shared}, true},
		{"records", []string{ecdsa}, false},
		{"records", []string{shared, "whsec_short"}, false},
		{"sendgrid", []string{ecdsa}, true},
		{"sendgrid", []string{ecdsa, ecdsa}, false},
		{"sendgrid", []string{shared}, false},
	} {
		_, err := Parse(fmt.Appendf(nil, "stream \"app\" {\n to = \"https://app.example.com/\"\n format = %q\n secrets = [\"%s\"]\n}", c.format, strings.Join(c.secrets, `", "`)), "mta.conf", noEnv)
		switch {
		case c.good && err != nil:
			t.Errorf("%s with %d secrets: %v", c.format, len(c.secrets), err)
		case !c.good && err == nil:
			t.Errorf("%s with %d secrets is accepted", c.format, len(c.secrets))
		case !c.good && (!strings.Contains(err.Error(), "mta streams key") || strings.Contains(err.Error(), c.secrets[0][8:])):
			t.Errorf("%s: no remedy, or the secret: %v", c.format, err)
		}
	}
}
