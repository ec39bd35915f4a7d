package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadConfigurations holds what is said of each testdata/bad/*.conf against the text beside
// it. UPDATE_GOLDEN=1 writes the texts anew; read them before you commit them.
func TestBadConfigurations(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.conf")
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad configurations: %v", err)
	}
	env := func(name string) string { return map[string]string{"SET": "set"}[name] }
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".conf"), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(src, filepath.Base(file), env)
			if err == nil {
				t.Fatal("nothing is said against it")
			}
			got := err.Error() + "\n"
			golden := strings.TrimSuffix(file, ".conf") + ".expected"
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if strings.Contains(got, "hunter2") {
				t.Errorf("a password is shown:\n%s", got)
			}
		})
	}
}
