package datadir

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/mta/mta/config"
)

// TestSecretsAreWhole: every file outside of the data directory that the configuration names is in a backup with secrets.
func TestSecretsAreWhole(t *testing.T) {
	cfg, err := config.Parse([]byte(`
		listener "smtp" {
		  address = "127.0.0.1:2525"
		  tls {
		    certificate = "/x/1"
		    key         = "/x/2"
		    client_ca   = "/x/3"
		    client_certificates = true
		  }
		}
		api "web" {
		  address = "127.0.0.1:8080"
		  tls {
		    certificate = "/x/4"
		    key         = "/x/5"
		  }
		}
		console {
		  address = "127.0.0.1:8081"
		  users   = "/x/6"
		  tls {
		    certificate = "/x/7"
		    key         = "/x/8"
		  }
		}
		users { file = "/x/9" }
		keys { file = "/x/10" }
		defaults { tls_ca = "/x/11" }
		provider "p" {
		  mx     = ["*.p.example"]
		  tls_ca = "/x/12"
		}
		domain "d.example" {
		  tls_ca          = "/x/13"
		  tls_certificate = "/x/14"
		  tls_key         = "/x/15"
		}
		stream "s" {
		  to = "https://s.example/"
		  ca = "/x/16"
		}
		dkim "d" {
		  domain = "d.example"
		  key "k" { file = "/x/17" }
		}
	`), "test.conf", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	parts, err := (&Backup{}).secrets(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		has[p.Name] = true
	}
	for i := range 17 {
		if name := fmt.Sprintf("config/x/%d", i+1); !has[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// TestWhatACMEHasGot is in a backup with secrets, in its place if that is in the data directory.
func TestWhatACMEHasGot(t *testing.T) {
	cfg := &config.Config{DataDir: t.TempDir()}
	cfg.ACME.Names, cfg.ACME.Path = []string{"relay.example"}, filepath.Join(cfg.DataDir, "acme")
	want := []string{"acme/acme_account+key", "acme/relay.example"}
	if err := os.Mkdir(cfg.ACME.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range want {
		if err := os.WriteFile(filepath.Join(cfg.DataDir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := (&Backup{}).secrets(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range parts {
		if strings.HasPrefix(p.Name, "acme/") {
			names = append(names, p.Name)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("of ACME %q, want %q", names, want)
	}
	if name := nameOf(cfg, filepath.Join(cfg.DataDir, "templates", "acme", "a.text")); name != "templates/acme/a.text" {
		t.Errorf("a template in the data directory is %s", name)
	}
}
