package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sign signs a zone with a new key by ldns-signzone, and gives the signed zone, with the trust anchor for
// Unbound.
func sign(t *testing.T, zone, text string) (signed, anchor string) {
	t.Helper()
	programs := need(t, "ldns-keygen", "ldns-signzone")
	dir := scratch(t)
	writeFile(t, dir+"/zone", text)
	run := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		return strings.TrimSpace(string(out))
	}
	key := run(programs[0], "-r", "/dev/urandom", "-a", "ECDSAP256SHA256", "-k", zone)
	run(programs[1], "-f", "signed", "zone", key)
	return readFile(t, dir+"/signed"), strings.Join(strings.Fields(readFile(t, filepath.Join(dir, key+".ds"))), " ")
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
