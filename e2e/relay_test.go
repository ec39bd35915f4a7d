package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// relay is the binary at work on a data directory that outlives it.
type relay struct {
	addr   string // where it takes mail
	dir    string
	config string // its file
	*process
}

// newRelay writes a configuration for a relay that asks the name server at dns and delivers to
// port. extra is further lines of it.
func newRelay(t *testing.T, dns, port, extra string) *relay {
	t.Helper()
	dir := scratch(t)
	addr := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	r := &relay{addr: addr, dir: dir, config: dir + "/mta.conf"}
	writeFile(t, r.config, fmt.Sprintf(`hostname = "relay.example"
data_dir = "%[1]s/data"

listener "smtp" {
  address          = ["%[2]s"]
  relay_from       = ["127.0.0.0/8"]
  max_message_size = "64MiB"
  max_recipients   = 2000
}
http { address = "" }
resolver {
  servers      = ["%[3]s"]
  negative_ttl = "1s"
}
defaults {
  smtp_port          = %[4]s
  retry_interval     = "500ms"
  max_retry_interval = "2s"
}
%[5]s
`, dir, addr, dns, port, extra))
	return r
}

// start runs the relay until the test's end, or until it is stopped or killed before.
func (r *relay) start(t *testing.T) {
	t.Helper()
	r.process = start(t, "relay", binary, "serve", "--config", r.config)
	r.listens(t, r.addr)
}

// mta runs one of the binary's commands and gives its output.
func (r *relay) mta(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.tryMTA(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *relay) tryMTA(args ...string) (string, error) {
	var out, complaint bytes.Buffer
	cmd := exec.Command(binary, append(args, "--config", r.config)...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("mta %s: %w\n%s", strings.Join(args, " "), err, complaint.String())
	}
	return out.String(), nil
}

// queued lists the recipients in the queue, as "id address"; by 'mta queue list --json'.
func (r *relay) queued() ([]string, error) {
	out, err := r.tryMTA("queue", "list", "--json", "--limit", "0")
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(out) {
		var item struct {
			ID        string `json:"id"`
			Recipient string `json:"recipient"`
		}
		if err := json.Unmarshal([]byte(line), &item); err != nil {
			return nil, fmt.Errorf("a line of mta queue list --json: %w: %s", err, line)
		}
		all = append(all, item.ID+" "+item.Recipient)
	}
	return all, nil
}

// drained waits until the queue is empty.
func (r *relay) drained(t *testing.T, limit time.Duration) {
	t.Helper()
	eventually(t, limit, func() error {
		left, err := r.queued()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d recipients are still in the queue, among them %s", len(left), left[0])
		}
		return err
	})
}
