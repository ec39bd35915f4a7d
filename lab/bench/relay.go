package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.org/mta/operator/api"
)

// RelayOptions are how a relay of our own is run.
type RelayOptions struct {
	Binary string // the program; "" is this one
	Config string // further lines of its configuration
	Dir    string // for its configuration, log and data, kept afterwards; "" is a temporary one
	Limit  int    // connection_limit; 0 is the default
	// Sources is from how many addresses it sends, those from 127.41.0.1 on; 0 is whichever the system takes.
	Sources int
	Env     []string // besides this process's
}

// Relay is 'mta serve' as a process in a group of its own.
type Relay struct {
	Address string // where it takes mail
	PID     int
	Dir     string

	control *api.Client
	cmd     *exec.Cmd
	log     string
	metrics string // the URL
	ended   chan struct{}
	err     error // why it ended; to be read after ended
	remove  bool  // Dir
}

const (
	startLimit = 20 * time.Second
	stopLimit  = 10 * time.Second
)

// StartRelay runs a relay that delivers to g, and waits until it takes mail.
func StartRelay(ctx context.Context, o RelayOptions, g *Ground) (*Relay, error) {
	r := &Relay{Dir: o.Dir, remove: o.Dir == "", ended: make(chan struct{})}
	if err := r.prepare(o, g); err != nil {
		return nil, errors.Join(err, r.clean())
	}
	if err := r.launch(o); err != nil {
		return nil, errors.Join(err, r.clean())
	}
	if err := r.ready(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the relay: %w", err), r.Close())
	}
	return r, nil
}

// prepare writes the configuration.
func (r *Relay) prepare(o RelayOptions, g *Ground) (err error) {
	if r.remove {
		r.Dir, err = os.MkdirTemp("", "mta-bench-")
	} else if r.Dir, err = filepath.Abs(r.Dir); err == nil {
		err = os.MkdirAll(r.Dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("making a folder for the relay: %w", err)
	}
	r.log = filepath.Join(r.Dir, "relay.log")
	r.control = api.NewClient(filepath.Join(r.Dir, "data", "control.sock"))
	if g.TLS != nil {
		if err := WriteCertificate(g.TLS, r.Dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(r.Dir, "mta.conf"), []byte(relayConfig(r.Dir, o, g)), 0o600)
}

// relayConfig has the defaults but for what takes it to the sites, and for times that make waiting
// short where something is to be tried again.
func relayConfig(dir string, o RelayOptions, g *Ground) string {
	limit := ""
	if o.Limit > 0 {
		limit = fmt.Sprintf("connection_limit    = %d\n", o.Limit)
	}
	var sources strings.Builder
	for i := range o.Sources {
		fmt.Fprintf(&sources, "source \"out%d\" { address = \"127.41.%d.%d\" }\n", i+1, i/200, i%200+1)
	}
	listener, outbound := "", ""
	if g.TLS != nil {
		listener = fmt.Sprintf("\n  tls {\n    certificate = [%q]\n    key = [%q]\n  }",
			filepath.Join(dir, certificateFile), filepath.Join(dir, keyFile))
		outbound = "tls = \"required\"\n  "
	}
	return fmt.Sprintf(`# The configuration of the relay that 'mta bench' measures.
hostname = "relay.example"
data_dir = %[1]q

listener "smtp" {
  address        = ["127.0.0.1:0"]
  relay_from     = ["127.0.0.0/8"]
  max_recipients = 100000%[7]s
}
http { address = "127.0.0.1:0" }
resolver { servers = [%[2]q] }
router { allow_loopback = true }
shutdown { drain = "1s" }

defaults {
  smtp_port           = %[3]s
  retry_interval      = "1s"
  max_retry_interval  = "2s"
  host_retry_interval = "1s"
  %[8]s%[4]s}
%[6]s%[5]s
`, filepath.Join(dir, "data"), g.DNS, g.Port, limit, o.Config, &sources, listener, outbound)
}

func (r *Relay) launch(o RelayOptions) error {
	program := o.Binary
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return fmt.Errorf("finding this program: %w", err)
		}
	}
	out, err := os.Create(r.log)
	if err != nil {
		return fmt.Errorf("opening the relay's log: %w", err)
	}
	defer out.Close()
	// A group of its own: an interrupt from the terminal is not to reach it before Close does.
	r.cmd = &exec.Cmd{Path: program, Args: []string{"mta", "serve", "--config", filepath.Join(r.Dir, "mta.conf")},
		Stdout: out, Stderr: out, Env: append(os.Environ(), o.Env...), SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("starting the relay: %w", err)
	}
	r.PID = r.cmd.Process.Pid
	go func() {
		defer close(r.ended)
		r.err = r.cmd.Wait()
	}()
	return nil
}

var monitoringLine = regexp.MustCompile(`msg="answering monitoring" address=(\S+)`)

// ready waits until the relay takes mail and answers monitoring.
func (r *Relay) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := api.OpStatus.Call(ctx, r.control, api.None{})
		log, _ := os.ReadFile(r.log)
		if found := monitoringLine.FindSubmatch(log); err == nil && found != nil && len(status.SMTP) > 0 {
			r.Address, r.metrics = status.SMTP[0], "http://"+string(found[1])+"/metrics"
			return nil
		}
		select {
		case <-r.ended:
			return fmt.Errorf("it has ended, %v; it said: %s", r.err, lastLine(log))
		case <-ctx.Done():
			return fmt.Errorf("it is not ready after %v: %w; it said: %s", startLimit, err, lastLine(log))
		case <-tick.C:
		}
	}
}

func lastLine(log []byte) string {
	log = bytes.TrimSpace(log)
	return string(log[bytes.LastIndexByte(log, '\n')+1:])
}

// Server is the relay as Measure wants it.
func (r *Relay) Server() Server {
	return Server{Name: "relay", Address: r.Address, PID: r.PID, Queued: r.Queued, Syncs: r.syncs, Doubts: r.Doubts}
}

// Queued is how many recipients the relay still has.
func (r *Relay) Queued(ctx context.Context) (int64, error) {
	status, err := api.OpStatus.Call(ctx, r.control, api.None{})
	return status.Queue.Queued, err
}

func (r *Relay) syncs(ctx context.Context) (int64, error) {
	v, err := r.Metric(ctx, "mta_queue_syncs_total")
	return int64(v), err
}

// Metric asks for a metric without labels.
func (r *Relay) Metric(ctx context.Context, name string) (float64, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.metrics, nil)
	if err != nil {
		return 0, err
	}
	q.Close = true
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, fmt.Errorf("asking the relay for its metrics: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, fmt.Errorf("asking the relay for its metrics: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return 0, fmt.Errorf("the relay has no metric %s", name)
}

var ambiguousLine = regexp.MustCompile(`msg="ambiguous:[^"]*" message=(\S+)`)

// Doubts reads in the relay's log how often it didn't know whether a message was taken.
func (r *Relay) Doubts() (map[string]int, error) {
	log, err := os.ReadFile(r.log)
	if err != nil {
		return nil, fmt.Errorf("reading the relay's log: %w", err)
	}
	all := make(map[string]int)
	for _, found := range ambiguousLine.FindAllSubmatch(log, -1) {
		all[string(found[1])]++
	}
	return all, nil
}

// Close ends the relay and waits for it. An error says that it didn't end well.
func (r *Relay) Close() error {
	r.control.Close()
	select {
	case <-r.ended:
		return errors.Join(fmt.Errorf("the relay ended by itself: %w", errors.Join(r.err, r.trouble())), r.clean())
	default:
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.ended:
	case <-time.After(stopLimit):
		_ = r.cmd.Process.Kill()
		<-r.ended
		return errors.Join(fmt.Errorf("the relay did not end within %v", stopLimit), r.clean())
	}
	return errors.Join(r.err, r.trouble(), r.clean())
}

// trouble is what the log says of something broken in the program.
func (r *Relay) trouble() error {
	log, err := os.ReadFile(r.log)
	if err != nil {
		return err
	}
	for _, sign := range []string{"DATA RACE", "panic:", "fatal error:", "msg=panic"} {
		if i := bytes.Index(log, []byte(sign)); i >= 0 {
			return fmt.Errorf("the relay says %q: %s", sign, log[max(0, i-200):min(len(log), i+2000)])
		}
	}
	return nil
}

func (r *Relay) clean() error {
	if !r.remove || r.Dir == "" {
		return nil
	}
	return os.RemoveAll(r.Dir)
}
