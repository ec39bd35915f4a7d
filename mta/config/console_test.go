package config

import (
	"slices"
	"strings"
	"testing"
)

func TestConsolesThatCannotBeRight(t *testing.T) {
	const users = `users = "/etc/mta/console-users"` + "\n"
	for text, want := range map[string]string{
		``: "",
		`address = "127.0.0.1:8026"` + "\n" + users:                                                                  "",
		`address = "[::1]:8026"` + "\n" + users:                                                                      "",
		`address = "127.0.0.1:8026"`:                                                                                 "nobody could log in",
		`address = ":8026"` + "\n" + users:                                                                           "in clear over the network",
		`address = "192.0.2.1:8026"` + "\n" + users:                                                                  "in clear over the network",
		`address = ":8026"` + "\n" + users + `trusted_proxies = ["192.0.2.9"]`:                                       "",
		`address = ":8026"` + "\n" + `trusted_proxies = ["192.0.2.9"]`:                                               "nobody could log in",
		`address = ":8026"` + "\n" + users + `trusted_proxies = ["0.0.0.0/0"]`:                                       "lets everyone claim any address",
		`address = ":8026"` + "\n" + users + "tls {\n certificate = \"a.pem\"\n}":                                    "numbers of certificates (1) and keys (0) differ",
		`address = "127.0.0.1:8026"` + "\n" + users + `user_header = "X-Remote-User"`:                                "counts from trusted proxies only",
		`address = "127.0.0.1:8026"` + "\n" + users + "trusted_proxies = [\"::1\"]\nuser_header = \"X-Remote-User\"": "",
		`address = "127.0.0.1:8026"` + "\n" + users + "trusted_proxies = [\"::1\"]\nuser_header = \"a b\"":           "not a valid name of a header field",
		`address = "127.0.0.1:8026"` + "\n" + users + `base_path = "/mta"`:                                           "",
		`address = "127.0.0.1:8026"` + "\n" + users + `base_path = "/mta/"`:                                          "is not a valid path",
		`address = "127.0.0.1:8026"` + "\n" + users + `base_path = "/../mta"`:                                        "is not a valid path",
		`address = "127.0.0.1:8026"` + "\n" + users + `hosts = ["a.example", "192.0.2.1", "::1", "localhost"]`:       "",
		`address = "127.0.0.1:8026"` + "\n" + users + `hosts = ["a.example:8026"]`:                                   "is not a valid host name",
		`address = "127.0.0.1:2525"` + "\n" + users:                                                                  "already listens at 127.0.0.1:2525",
	} {
		_, err := Parse([]byte("console {\n"+text+"\n}"), "test.conf", noEnv)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestNamesOfTheConsole(t *testing.T) {
	for _, k := range []struct {
		c    Console
		want []string
	}{
		{Console{Address: "127.0.0.1:8026"}, []string{"mta1.example", "localhost", "127.0.0.1", "::1"}},
		{Console{Address: ":8026"}, []string{"mta1.example"}},
		{Console{Address: "127.0.0.1:8026", Hosts: []string{"a.example"}}, []string{"a.example"}},
	} {
		if got := k.c.Names("mta1.example"); !slices.Equal(got, k.want) {
			t.Errorf("%+v: %v, want %v", k.c, got, k.want)
		}
	}
}
