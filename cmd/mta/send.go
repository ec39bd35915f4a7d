package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/client"
	"example.org/mta/cmd/mta/draw"
	"example.org/mta/mta/config"
)

const sendHelp = `Submit a request by HTTP, as an application does: the JSON of POST /v1/messages, from a
file or standard input (-). The relay is that of --url, of $MTA_URL, or the first api block
of the configuration. The API key is in the file of --key-file or in $MTA_KEY; it is never
an argument, which other users can see.

The command tries again until the relay has answered, for --patience. Whatever is lost on
the way, the message is accepted once. If it gives up, it prints the Idempotency-Key with
which the same request can be sent again.

The exit status is 1 if a recipient is refused.`

// sending is what a request is sent with.
type sending struct {
	file, url, keyFile, key string
	patience                time.Duration
	asJSON                  bool
}

func newSend(c *cli) *cobra.Command {
	var s sending
	cmd := &cobra.Command{
		Use:   "send --json FILE",
		Short: "submit a message by HTTP",
		Long:  sendHelp,
		Args:  noArgs,
		Example: `  mta send --json letter.json --key-file shop.key
  mta send --json - --url https://relay.example.com --idempotency-key order-4711`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.file == "" {
				return usagef("name the file of the request: --json FILE")
			}
			return c.send(cmd.Context(), s)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.file, "json", "", "the `file` with the request; - is standard input")
	f.StringVar(&s.url, "url", "", "the `URL` of the relay's api listener (default: $MTA_URL, or that of the configuration)")
	f.StringVar(&s.keyFile, "key-file", "", "a `file` with the API key (default: $MTA_KEY has the key)")
	f.StringVar(&s.key, "idempotency-key", "", "the `name` under which the request counts once (default: a random one)")
	f.DurationVar(&s.patience, "patience", 2*time.Minute, "for how `long` to try again; 0s: once")
	f.BoolVar(&s.asJSON, "print-json", false, "print the relay's answer as JSON")
	return cmd
}

func (c *cli) send(ctx context.Context, s sending) error {
	body, _, err := c.readInput(s.file)
	if err != nil {
		return err
	}
	to := client.Client{Patience: s.patience}
	if s.patience == 0 {
		to.Patience = -1
	}
	if to.URL, err = c.apiURL(s.url); err != nil {
		return err
	}
	if to.Key, err = c.apiKey(s.keyFile); err != nil {
		return err
	}
	sent, err := to.SendJSON(ctx, body, s.key)
	if err != nil {
		return sendFault(err)
	}
	if s.asJSON {
		err = writeJSON(c.out, sent)
	} else {
		err = c.printSent(sent)
	}
	if err == nil && refused(sent) {
		return exitError(exitFailed)
	}
	return err
}

// apiURL is where the relay takes requests.
func (c *cli) apiURL(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if url := c.env("MTA_URL"); url != "" {
		return url, nil
	}
	cfg, err := c.config()
	if err != nil {
		return "", err
	}
	if len(cfg.APIs) == 0 || len(cfg.APIs[0].Address) == 0 {
		return "", hinted{errors.New("the configuration has no api block"), `name the relay with --url, or add api "local" { address = "127.0.0.1:8080" } to it`}
	}
	return urlOf(cfg, cfg.APIs[0])
}

// urlOf is the URL of an api block, for programs on this machine.
func urlOf(cfg *config.Config, a *config.API) (string, error) {
	host, port, err := net.SplitHostPort(a.Address[0])
	if err != nil {
		return "", err
	}
	if a.TLS.Enabled() {
		return "https://" + net.JoinHostPort(cfg.Hostname, port), nil
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// apiKey reads the key from a file or the environment.
func (c *cli) apiKey(file string) (string, error) {
	if file == "" {
		if key := strings.TrimSpace(c.env("MTA_KEY")); key != "" {
			return key, nil
		}
		return "", hinted{errors.New("there is no API key"), "put it into a file and name that with --key-file, or into $MTA_KEY; 'mta key add' makes one"}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(content))
	if key == "" || strings.ContainsAny(key, " \r\n") {
		return "", fmt.Errorf("%s: want a file with one line, the API key", file)
	}
	return key, nil
}

// sendFault puts each fault on a line.
func sendFault(err error) error {
	var e *client.Error
	if !errors.As(err, &e) || len(e.Faults) == 0 {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s: %s", e.Status, e.Title, e.Detail)
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "\n  %s: %s", f.Pointer, f.Detail)
		if f.Remedy != "" {
			fmt.Fprintf(&b, " (%s)", f.Remedy)
		}
	}
	return errors.New(b.String())
}

func (c *cli) printSent(sent *client.Sent) error {
	t := &draw.Table{Columns: []draw.Column{{Title: "ID"}, {Title: "RECIPIENT", Shrink: true}, {Title: "STATUS"}}}
	for _, m := range sent.Messages {
		id := m.ID
		if id == "" {
			id = "-"
		}
		if len(m.Recipients) == 0 {
			t.Add(m.Detail, id, "-", m.Status)
		}
		for _, r := range m.Recipients {
			t.Add(strings.TrimSpace(r.Code+" "+r.Detail), id, r.Address, r.Status)
		}
		if m.Content != "" {
			fmt.Fprint(c.out, m.Content)
		}
	}
	if sent.Replayed {
		fmt.Fprintln(c.err, "the relay has accepted this request before")
	}
	return t.Write(c.out, c.screen)
}

func refused(sent *client.Sent) bool {
	for _, m := range sent.Messages {
		for _, r := range m.Recipients {
			if r.Status == "refused" || r.Status == "failed" {
				return true
			}
		}
		if m.Status == "refused" || m.Status == "failed" {
			return true
		}
	}
	return false
}
