package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/mta/internal/settings"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mta.conf")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(path, noEnv); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is not there: %v", err)
	}

	write(`listener "smtp" {
  address = "127.0.0.1:2525"
  tls {
    certificate = "` + dir + `/none.pem"
    key         = "` + dir + `/none.key"
  }
}`)
	var problems settings.Problems
	if _, err := Load(path, noEnv); !errors.As(err, &problems) || len(problems) != 1 || problems[0].Line != 4 || !strings.Contains(err.Error(), "none.pem") {
		t.Errorf("a certificate that is not there: %v", err)
	}

	write(`console {
  address = "127.0.0.1:8026"
  users   = "` + dir + `/users"
  tls {
    certificate = "` + dir + `/none.pem"
    key         = "` + dir + `/none.key"
  }
}`)
	if _, err := Load(path, noEnv); !errors.As(err, &problems) || len(problems) != 1 || problems[0].Line != 5 || !strings.Contains(err.Error(), "none.pem") {
		t.Errorf("a certificate of the console that is not there: %v", err)
	}

	write(`stream "app" {
  to = "https://app.example/hook"
  ca = "` + dir + `/none.pem"
}`)
	if _, err := Load(path, noEnv); !errors.As(err, &problems) || len(problems) != 1 || problems[0].Line != 3 || !strings.Contains(err.Error(), "none.pem") {
		t.Errorf("authorities of a stream that are not there: %v", err)
	}

	write(`data_dir = "` + dir + `"`)
	if c, err := Load(path, noEnv); err != nil || c.DataDir != dir {
		t.Errorf("a file that is right: %v", err)
	}

	if err := os.Truncate(path, 1<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, noEnv); err == nil || !strings.Contains(err.Error(), "is it the right file?") {
		t.Errorf("a file that is none: %v", err)
	}
}

// TestTakeover is refused where a node could not write in time, or not close its connections before it is over; and so
// is a copy together with what only nodes without one do.
func TestTakeover(t *testing.T) {
	const less, without = ":18: takeover: %s is less than 30s", "has no effect with replicate"
	for text, why := range map[string]string{"0s": "", "1s": less, "29s": less, "30s": "",
		"40s\"\nreplicate = true\non_loss = \"part": without} {
		_, err := Parse(fmt.Appendf(nil, `cluster {
			database    = "host=db"
			address     = "10.0.0.1:2571"
			certificate = "/c"
			key         = "/k"
			ca          = "/ca"
			takeover    = "%s"
		}`, text), "f", os.Getenv)
		if why == less {
			why = fmt.Sprintf(less, text)
		}
		if (err != nil) != (why != "") || why != "" && !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
