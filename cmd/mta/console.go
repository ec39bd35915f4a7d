package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/operator/web"
)

const consoleHelp = `Serve the console, pages for a browser that show the relay and steer it, on this machine's
loopback address until interrupted. The command prints a link that logs in: it is good
once, within a minute; press Enter for another one.

The right to use the relay's control socket is the right to use the console. With
--read-only nobody can change anything, or read what messages say. The audit names the
user who runs the command.

On a remote machine, choose a port and forward it:

  ssh -L 8026:127.0.0.1:8026 mta1.example.com mta console --port 8026

The relay can serve the console itself, for users with names and roles: see the block
console of the configuration, and 'mta console user'.`

func newConsole(c *cli) *cobra.Command {
	var (
		readOnly bool
		port     int
	)
	cmd := &cobra.Command{
		Use:   "console",
		Short: "serve the console, pages for a browser",
		Long:  consoleHelp,
		Example: `  mta console
  mta console --read-only --port 8026`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return usagef("--port: want 0 to 65535, not %d", port)
			}
			return c.console(cmd.Context(), readOnly, port)
		},
	}
	cmd.AddCommand(newConsoleUser(c))
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "nobody can change anything, or read what messages say")
	cmd.Flags().IntVar(&port, "port", 0, "the `port` on 127.0.0.1; 0: any that is free")
	return cmd
}

func (c *cli) console(ctx context.Context, readOnly bool, port int) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Status(ctx); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("listening for browsers: %w", err)
	}
	port = l.Addr().(*net.TCPAddr).Port
	server, err := web.New(web.Config{Relay: client, ReadOnly: readOnly, CookieSuffix: "-" + strconv.Itoa(port), Now: c.now})
	if err != nil {
		l.Close()
		return err
	}
	c.printLink(server, port)
	go c.printMoreLinks(server, port)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	shut, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := server.Shutdown(shut); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// printLink prints a link that logs in, for whoever has run the command.
func (c *cli) printLink(s *web.Server, port int) {
	who := web.Identity{User: userName(), Role: web.Admin}
	fmt.Fprintf(c.out, "http://127.0.0.1:%d%s\n", port, s.Ticket(who))
	fmt.Fprintln(c.err, "open the link within a minute; it is good once. Enter prints another one, interrupt ends the console")
}

// printMoreLinks prints one for each line of a terminal.
func (c *cli) printMoreLinks(s *web.Server, port int) {
	if !c.onTerminal() {
		return
	}
	lines := make([]byte, 1)
	for {
		if _, err := c.in.Read(lines); err != nil {
			return
		}
		if lines[0] == '\n' {
			c.printLink(s, port)
		}
	}
}

// userName is who runs the command.
func userName() string {
	if u, err := user.Current(); err == nil {
		return cmp.Or(u.Username, u.Uid)
	}
	return strconv.Itoa(os.Getuid())
}
