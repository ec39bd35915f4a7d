package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
)

// programBefore builds this tree's program as a version from before the newest format of the queue: it knows all
// formats but that one, which is returned. former has files that are others in it, by their path in this tree; those
// without text are not there.
func programBefore(t *testing.T, version string, former map[string]string) (program string, newest int) {
	t.Helper()
	const path = "queue/store/codec.go"
	line := regexp.MustCompile(`(?m)^\tCodecVersion += ([0-9]+)$`)
	format := func(code string) int {
		t.Helper()
		is := line.FindStringSubmatch(code)
		if is == nil {
			t.Fatal(path + " has no line for CodecVersion: this test has to be adapted")
		}
		n, err := strconv.Atoi(is[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	code := readFile(t, "../"+path)
	newest = format(code)
	dir, replaced := scratch(t), make(map[string]string)
	replace := func(path, text string) {
		t.Helper()
		original, err := filepath.Abs("../" + path)
		if err != nil {
			t.Fatal(err)
		}
		if replaced[original] = ""; text != "" {
			replaced[original] = filepath.Join(dir, strings.ReplaceAll(path, "/", "+"))
			writeFile(t, replaced[original], text)
		}
	}
	for path, text := range former {
		replace(path, text)
	}
	if was := former[path]; was != "" {
		code = was
	}
	if format(code) == newest {
		replace(path, line.ReplaceAllString(code, fmt.Sprintf("\tCodecVersion = %d", newest-1)))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "overlay.json"), string(overlay))
	program = filepath.Join(dir, "mta")
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"),
		"-ldflags", "-X main.version="+version, "-o", program, "../cmd/mta").CombinedOutput(); err != nil {
		t.Fatalf("building the program before: %v\n%s", err, out)
	}
	return program, newest
}

// commitBefore has the files that are others in the commit before this tree's, or in the one that MTA_BEFORE names.
// Where a checkout does not have that commit, it has none, and the list of what was skipped names the reason.
func commitBefore(t *testing.T) (files map[string]string) {
	t.Helper()
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", ".."}, args...)...).Output()
		return string(out), err
	}
	commit := os.Getenv("MTA_BEFORE")
	if commit == "" {
		commit = "HEAD~1"
	}
	name, err := git("log", "-1", "--format=%h %s", commit)
	if err != nil {
		why := "this checkout does not have the commit " + commit + ": this tree stands for it"
		t.Log(why)
		skipped.add(t.Name(), why)
		return nil
	}
	changed, err := git("diff", "--name-only", "--no-renames", commit)
	if err != nil {
		t.Fatal(err)
	}
	untracked, err := git("ls-files", "--others", "--exclude-standard")
	if err != nil {
		t.Fatal(err)
	}
	files = make(map[string]string)
	for path := range strings.Lines(changed + untracked) {
		path = strings.TrimSuffix(path, "\n")
		files[path], _ = git("show", commit+":"+path) // it does not have all
	}
	t.Logf("the commit before is %s, with %d other files", strings.TrimSpace(name), len(files))
	return files
}

// TestAClusterUpgrades has three relays of the commit before, as a version with the format of the queue before, take mail
// all the time and share a limit of a provider, while they are replaced one by one by this tree's. Nothing is lost,
// nothing comes twice, and nothing is over the limit; the upgrade can be finished when it has reached all.
func TestAClusterUpgrades(t *testing.T) {
	parallel(t)
	const rate, places = 60, 4
	const address = "127.31.8.1"
	before, newest := programBefore(t, "0.1.0~before", commitBefore(t))
	primary, standby := newPair(t)
	admin := []string{"MTA_CLUSTER_DATABASE=" + primary.dsn("postgres", "postgres")}
	schema := func(program string) {
		t.Helper()
		runClient(t, "", "env", admin[0], program, "cluster", "init")
		primary.ask(t, grants(t))
	}
	schema(before)
	port := commonPort(t, address)
	relays := newMembers(t, []*database{primary, standby}, serveNames(t, sink.MustZone(mxRecords("big", address))), port, fmt.Sprintf(`
provider "big" {
  mx               = ["mx.big.example"]
  connection_limit = %d
  max_message_rate = "%d/s"
}
tenant "acme" {}
keys { file = "KEYS" }
api "web" { address = ["WEB"] }
`, places, rate), 3)
	for _, r := range relays {
		r.program = before
		r.start(t)
	}
	c := newCustomers(t, relays, patience)
	c.big = newToll(t, net.JoinHostPort(address, port), 50*time.Millisecond)
	end := c.load()
	time.Sleep(3 * time.Second)
	schema(binary)
	for i, r := range relays {
		if !r.stop(patience) {
			t.Errorf("node %d does not stop", i+1)
		}
		r.program = binary
		r.start(t)
		out, err := r.try("upgrade", "finish")
		if i < len(relays)-1 && (err == nil || !strings.Contains(out, "node 3 has mta 0.1.0~before")) {
			t.Errorf("with nodes of both versions, mta upgrade finish prints %s, %v", out, err)
		}
		time.Sleep(3 * time.Second)
		t.Logf("node %d is upgraded: %d messages have come, %d requests", i+1, c.big.record.Tally().Unique, c.requests())
	}
	for i, r := range relays {
		eventually(t, patience, func() error { // nodes read who is there every 5 s
			out, err := r.try("upgrade", "finish")
			if err == nil && !strings.Contains(out, fmt.Sprintf("queue: format %d is written from now on", newest)) &&
				!strings.Contains(out, "nothing to finish") {
				err = errors.New("want the newest format of the queue")
			}
			if err != nil {
				return fmt.Errorf("at node %d mta upgrade finish prints %s, %w", i+1, out, err)
			}
			return nil
		})
	}
	time.Sleep(2 * time.Second)
	end()
	for _, r := range relays {
		r.drained(t, patience)
	}
	c.judgeMail(time.Time{})
	c.judgeLimits(rate, places)
	c.repeat()
}
