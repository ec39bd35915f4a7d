package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"example.org/mta/mta/service"
)

func TestRequireVolume(t *testing.T) {
	for _, test := range []struct {
		what, required, dir string
		refused             bool
	}{
		{"the container's own file system", "true", "/usr", true},
		{"not there yet", "true", "/usr/there/is/none", true},
		{"a volume", "true", "/proc", false},
		{"not required", "false", "/usr", false},
		{"no image", "", "/usr", false},
	} {
		if test.refused && !service.SameMount("/usr", "/") {
			t.Logf("%s: /usr is a mount here, or mounts aren't known", test.what)
			continue
		}
		var said bytes.Buffer
		c := &cli{err: &said, env: func(string) string { return test.required }}
		err := c.requireVolume(filepath.FromSlash(test.dir))
		if code := exitError(0); errors.As(err, &code) != test.refused || test.refused && int(code) != exitConfig {
			t.Errorf("%s: %v", test.what, err)
		}
		if test.refused != strings.Contains(said.String(), volumeEnv+"=false") {
			t.Errorf("%s: printed %q", test.what, said.String())
		}
	}
}
