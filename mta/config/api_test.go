package config

import (
	"strings"
	"testing"
)

func TestAPIsThatCannotBeRight(t *testing.T) {
	const keys = `keys { file = "/etc/mta/keys" }` + "\n"
	for text, want := range map[string]string{
		keys + `api "web" { address = "127.0.0.1:8080" }`:                                                   "",
		keys + `api "web" { address = "[::1]:8080" }`:                                                       "",
		keys + `api "web" { address = "192.0.2.1:8080" }`:                                                   "in clear over the network",
		keys + `api "web" { address = ":8080" }`:                                                            "in clear over the network",
		keys + "api \"web\" {\n address = \":8080\"\n trusted_proxies = [\"192.0.2.9\"]\n}":                 "",
		keys + "api \"web\" {\n address = \":8080\"\n proxy_from = [\"192.0.2.9\"]\n}":                      "",
		keys + "api \"web\" {\n address = \":8080\"\n trusted_proxies = [\"0.0.0.0/0\"]\n}":                 "lets everyone claim any address",
		keys + "api \"web\" {\n address = \":8080\"\n trusted_proxies = [\"0.0.0.0/1\",\"128.0.0.0/1\"]\n}": "these networks together",
		keys + "api \"web\" {\n address = \":8443\"\n tls {\n certificate = \"a.pem\"\n }\n}":               "numbers of certificates (1) and keys (0) differ",
		keys + "api \"web\" {\n address = \":8443\"\n tls {\n acme = true\n }\n}":                           "acme has no names",
		keys + "api \"web\" {\n address = \"127.0.0.1:8080\"\n tenants = [\"acme\"]\n}":                     `there is no tenant "acme"`,
		keys + `api "web" { address = "127.0.0.1:2525" }`:                                                   "already listens at 127.0.0.1:2525",
		keys + `api "web" { }`:                     "has no address",
		`api "web" { address = "127.0.0.1:8080" }`: "no keys file",
	} {
		_, err := Parse([]byte(text), "test.conf", noEnv)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
