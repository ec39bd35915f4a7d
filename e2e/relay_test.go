package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// relay is the binary at work on a data directory that outlives it.
type relay struct {
	addr       string // where it takes mail
	dir        string
	config     string   // its file
	nameServer string   // that it asks
	env        []string // NAME=value, besides this process's environment
	program    string   // of another version; "": the one under test
	places
	*process
}

// places are where a relay answers, if it does.
type places struct {
	web     string // takes mail by HTTP
	inbound string // takes reports
	console string
}

// takingAll is configuration for tests whose clients don't come again: no mail is refused since this machine is busy.
const takingAll = "\nadmission { mode = \"off\" }\n"

// newRelay writes a configuration for a relay that asks the name server at dns and delivers to
// port. extra is further lines of it.
func newRelay(t *testing.T, dns, port, extra string) *relay {
	t.Helper()
	dir := scratch(t)
	addr := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	r := &relay{addr: addr, dir: dir, config: dir + "/mta.conf", nameServer: dns}
	writeFile(t, r.config, fmt.Sprintf(`hostname = "relay.example"
data_dir = "%[1]s/data"

listener "smtp" {
  address            = ["%[2]s"]
  relay_from         = ["127.0.0.0/8"]
  tenant_header_from = ["127.0.0.0/8"]
  max_message_size   = "64MiB"
  max_recipients     = 2000
}
http { address = "127.0.0.1:0" }
resolver {
  servers      = ["%[3]s"]
  negative_ttl = "1s"
}
router { allow_loopback = true }
defaults {
  smtp_port          = %[4]s
  retry_interval     = "1s"
  max_retry_interval = "2s"
}
%[5]s
`, dir, addr, dns, port, extra))
	return r
}

// serveNames answers by a zone, and returns where.
func serveNames(t *testing.T, zone *sink.Zone) string {
	t.Helper()
	names := sink.NewDNS(zone)
	at, err := names.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { names.Close() })
	return at.String()
}

// mailHost takes mail at an address and port, which it returns.
func mailHost(t *testing.T, address string, c sink.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	host := sink.New(c)
	go host.Serve(l)
	t.Cleanup(host.Close)
	return l.Addr().String()
}

// mxRecords has the mail to NAME.example go to one host, mx.NAME.example.
func mxRecords(name, address string) string {
	return fmt.Sprintf("%[1]s.example. 60 IN MX 10 mx.%[1]s.example.\nmx.%[1]s.example. 60 IN A %[2]s\n", name, address)
}

// submit sends a number of messages one after the other.
func (r *relay) submit(t *testing.T, n int, letter func(i int) (from string, to []string, content string)) {
	t.Helper()
	if err := r.take(n, letter); err != nil {
		t.Fatal(err)
	}
}

// take is submit for other goroutines than a test's own.
func (r *relay) take(n int, letter func(i int) (from string, to []string, content string)) error {
	s, err := dialSession(r.addr)
	if err != nil {
		return err
	}
	defer s.close()
	for i := range n {
		if _, err := s.send(letter(i)); err != nil {
			return err
		}
	}
	return nil
}

// hello is a message with further fields, each of which ends with CRLF.
func hello(fields string, to ...string) (from string, all []string, content string) {
	return "ann@client.example", to, fields + "From: ann@client.example\r\n\r\nhello\r\n"
}

// newKey makes a key of the HTTP API for the tenant acme, named shop.
func (r *relay) newKey(t *testing.T) string {
	t.Helper()
	out, err := mta(r.env, "--config", r.config, "key", "add", "--tenant", "acme", "--name", "shop")
	key, _, _ := strings.Cut(out, "\n")
	if err != nil || !strings.HasPrefix(key, "mta_") || strings.Contains(out, "not known") {
		t.Fatal(out, err)
	}
	return key
}

// start runs the relay until the test's end, or until it is stopped or killed before.
func (r *relay) start(t *testing.T) {
	t.Helper()
	r.process = start(t, "relay", r.command()...)
	r.listens(t, r.addr)
}

// command is what runs the relay, in its environment.
func (r *relay) command() []string {
	return slices.Concat([]string{"env"}, r.env, []string{cmp.Or(r.program, binary), "serve", "--config", r.config})
}

// as runs the binary under another name, as a system has it that makes sendmail a link to mta.
func (r *relay) as(t *testing.T, name, input string, args ...string) string {
	t.Helper()
	link := filepath.Join(r.dir, name)
	if err := os.Symlink(binary, link); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return runClient(t, input, append([]string{need(t, "env")[0], "MTA_CONFIG=" + r.config, link}, args...)...)
}

// queued lists the recipients in the queue, as the control socket says.
func (r *relay) queued() (all []string, err error) {
	err = r.list(api.Filter{}, func(m api.Item) {
		for _, to := range m.Recipients {
			all = append(all, to.Address)
		}
	})
	return all, err
}

// reply is what the queue shows as the last reply to a recipient; "" before the first attempt.
func (r *relay) reply(rcpt string) (string, error) {
	c := api.NewClient(r.dir + "/data/control.sock")
	defer c.Close()
	list, err := api.OpList.Call(context.Background(), c, api.ListQuery{Filter: api.Filter{Recipient: rcpt}})
	if err != nil {
		return "", fmt.Errorf("listing the queue: %w", err)
	}
	if len(list.Messages) != 1 {
		return "", fmt.Errorf("%d messages to %s in the queue, want 1", len(list.Messages), rcpt)
	}
	last := list.Messages[0].Recipients[0].Reply
	if last == nil {
		return "", nil
	}
	return last.Text, nil
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
