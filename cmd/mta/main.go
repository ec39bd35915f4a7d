// Command mta is an outbound mail relay, and what its operator needs to run it: a file for each
// command. Called as sendmail or mailq it behaves as those do.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	_ "time/tzdata" // the zones of day_starts, on machines that have none

	"golang.org/x/term"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/format"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
)

// Exit codes. Under the name of sendmail those of sysexits.h are used instead, see package sendmail.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	// exitConfig is EX_CONFIG of sysexits.h: the data are in a format that this version of the program does not
	// read, or 'serve' found something else that only an operator can mend.
	exitConfig = 78
)

func main() {
	os.Exit(run(&cli{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, now: time.Now,
		screen: screenOf(os.Stdout, os.Getenv), wellKnown: config.WellKnown(), announceIn: config.WellKnown()[0],
	}, os.Args))
}

// cli is what a command has of the world around it.
type cli struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
	now      func() time.Time
	screen   draw.Screen

	wellKnown  []string // directories in which a running relay may have said where it is
	announceIn string   // the one of them that serve writes to, besides its own data_dir

	configFlag, socketFlag string // --config, --socket
	usersFlag              string // --file of 'mta user'
	keysFlag               string // --file of 'mta key'
	started                bool   // the command line was understood, and the command runs
}

// run executes a command line by the name that the program was called by.
func run(c *cli, args []string) int {
	switch filepath.Base(args[0]) {
	case "sendmail":
		return c.sendmail(args[1:])
	case "newaliases":
		return c.sendmail([]string{"-bi"})
	case "mailq":
		return c.mailq(args[1:])
	}
	root := newRoot(c)
	root.SetArgs(args[1:])
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitDone
	}
	return c.fail(cmd.CommandPath(), err)
}

// exitError ends a command whose trouble has been printed already.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usageError is what is wrong with the command line itself.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// hinted is an error that says what to do.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// Hint gives the remedy.
func (h hinted) Hint() string { return h.hint }

// fail prints an error in the way of all commands and gives the exit code.
func (c *cli) fail(command string, err error) int {
	if code := exitError(0); errors.As(err, &code) {
		return int(code)
	}
	c.printError(err)
	usage, refused := usageError{}, (*api.Error)(nil)
	if wait := (inVain{}); errors.As(err, &wait) {
		return wait.code
	}
	switch {
	case errors.Is(err, format.ErrRefused), errors.Is(err, listen.ErrSockets):
		return exitConfig
	case !c.started, errors.As(err, &usage):
		fmt.Fprintf(c.err, "mta: see: %s --help\n", command)
		return exitUsage
	case errors.As(err, &refused) && refused.Status == 400:
		return exitUsage
	}
	return exitFailed
}

// printError writes an error, and below it what to do.
func (c *cli) printError(err error) {
	text, remedy := inPlain(err)
	if problems := (settings.Problems)(nil); errors.As(err, &problems) {
		c.printProblems(problems)
	} else {
		fmt.Fprintf(c.err, "mta: %s\n", draw.Clean(strings.ReplaceAll(text, "\n", "\nmta: ")))
	}
	if hint := cmp.Or(hintOf(err), remedy); hint != "" {
		fmt.Fprintf(c.err, "mta: %s\n", draw.Clean(hint))
	}
}

// hintOf gives the remedy that an error comes with, "" for none.
func hintOf(err error) string {
	if h := interface{ Hint() string }(nil); errors.As(err, &h) {
		return h.Hint()
	}
	return api.Hint(err)
}

// defaultConfig is read when neither --config nor MTA_CONFIG says otherwise, if it is there.
const defaultConfig = "/etc/mta/mta.conf"

// configPath returns which file is meant; "" for the built-in defaults.
func (c *cli) configPath() string {
	if c.configFlag != "" {
		return c.configFlag
	}
	if path := c.env("MTA_CONFIG"); path != "" {
		return path
	}
	if _, err := os.Stat(defaultConfig); err == nil {
		return defaultConfig
	}
	return ""
}

// config reads the configuration.
func (c *cli) config() (*config.Config, error) {
	if path := c.configPath(); path != "" {
		return config.Load(path, c.env)
	}
	return config.Default(), nil
}

// screenOf returns what f can show.
func screenOf(f *os.File, env func(string) string) draw.Screen {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return draw.Screen{}
	}
	s := draw.Screen{TTY: true, Colour: env("NO_COLOR") == "" && env("TERM") != "dumb"}
	if width, height, err := term.GetSize(fd); err == nil {
		s.Width, s.Height = width, height
	}
	return s
}
