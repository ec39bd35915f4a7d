// Command mta is an outbound mail relay, and what its operator needs to run it. Called as sendmail or mailq it behaves
// as those do.
//
// A file has the commands of one topic; lab.go has those that measure and simulate. main.go has what is there before a
// command runs: the command line, the configuration and the way to the running relay, and how errors are reported.
// answer.go makes commands of the relay's operations, and output.go prints.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // the zones of day_starts, on machines that have none

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/format"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
	"example.org/mta/queue/store"
)

// Exit codes. Under the name of sendmail those of sysexits.h are used instead, see package sendmail.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	// exitConfig is EX_CONFIG of sysexits.h: the data are in a format that this version of the program does not
	// read, or 'serve' found something else that only an operator can repair.
	exitConfig = 78
)

func main() {
	os.Exit(run(&cli{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, now: time.Now,
		screen: screenOf(os.Stdout, os.Getenv), usualConfig: defaultConfig,
		wellKnown: config.WellKnown(), announceIn: config.WellKnown()[0],
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

	usualConfig            string // read when nothing names another, if it is there
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

// exitError ends a command whose failure has been printed already.
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
	case errors.Is(err, format.ErrRefused), errors.Is(err, listen.ErrSockets), errors.Is(err, store.ErrMissing):
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
	if there(c.usualConfig) {
		return c.usualConfig
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

const rootHelp = `mta is an outbound mail relay.

It accepts mail by SMTP, keeps it safe on disk, delivers it to the mail exchangers of
each recipient, retries temporary failures, and reports permanent ones to the sender.
'mta serve' runs the relay; the other commands talk to the running relay on its
control socket.

The configuration is the file of --config, else of $MTA_CONFIG, else ` + defaultConfig + `
if it exists, else the built-in defaults: the relay accepts mail on 127.0.0.1:2525 and
keeps it in ./mta-data.

Exit codes: 0 success, 1 failure, 2 usage error, 78 the data were written by a version of
mta whose format this one does not read, or 'mta serve' needs an operator.`

func newRoot(c *cli) *cobra.Command {
	root := group("mta", "an outbound mail relay", rootHelp)
	root.Version = thisBuild().Version
	root.SetVersionTemplate("mta {{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.PersistentPreRun = func(*cobra.Command, []string) { c.started = true }
	root.PersistentFlags().StringVar(&c.configFlag, "config", "", "the configuration `file`")
	root.PersistentFlags().StringVar(&c.socketFlag, "socket", "",
		"the control `socket` of the relay (default: that of the configuration)")
	root.AddCommand(
		newServe(c), newCheck(c), newInit(c), newDemo(c), newBench(c), newImport(c),
		newStatus(c), newTop(c), newDrain(c), newUndrain(c),
		newQueue(c), newExplain(c), newSites(c), newHosts(c), newConnections(c), newSources(c), newPools(c),
		newTenants(c), newWarmup(c), newPause(c), newResume(c), newRule(c), newStreams(c), newTLS(c), newTrace(c),
		newConsole(c), newCluster(c),
		newSuppress(c), newBounce(c), newUser(c), newKey(c), newTemplate(c), newAdmission(c), newHistory(c), newDKIM(c),
		newTLSRPT(c), newLog(c), newActions(c), newUpgrade(c), newConfig(c),
		newBackup(c), newRestore(c),
		newSend(c), newSendmail(c), newMailq(c), newVersion(c), newCompletion(c),
	)
	root.AddCommand(forPackagers(c)...)
	c.completeNames(root)
	return root
}

// group makes a command that has only commands below it.
func group(use, short, long string, below ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Long: long}
	g.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		err := usagef("unknown command %q for %q", args[0], cmd.CommandPath())
		cmd.SuggestionsMinimumDistance = max(1, min(2, len(args[0])/2)) // of a short word all would be like some other
		if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
			err = hinted{err, "did you mean " + strings.Join(like, " or ") + "?"}
		}
		return err
	}
	g.RunE = func(cmd *cobra.Command, _ []string) error {
		fmt.Fprint(cmd.ErrOrStderr(), cmd.Long)
		if cmd.Long != "" {
			fmt.Fprint(cmd.ErrOrStderr(), "\n\n")
		}
		fmt.Fprint(cmd.ErrOrStderr(), cmd.UsageString())
		return exitError(exitUsage)
	}
	g.AddCommand(below...)
	return g
}

// texts are the words of a type.
func texts[T ~string](words []T) []string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return list
}

// joined lists words.
func joined[T ~string](words []T) string { return strings.Join(texts(words), ", ") }

// flagError puts Go's words for what is not a number into ours.
func flagError(cmd *cobra.Command, err error) error {
	if err.Error() == "unknown flag: --cluster" {
		return withoutCluster(cmd)
	}
	if own := (usageError{}); errors.As(err, &own) {
		return own
	}
	if _, text, ok := strings.Cut(err.Error(), " in -"); ok && text != "" && text[0] >= '0' && text[0] <= '9' {
		return usagef("-%s is not a valid argument (want no negative number)", text)
	}
	if at := strings.LastIndex(err.Error(), `: strconv.Parse`); at >= 0 {
		return errors.New(err.Error()[:at] + ": want a number")
	}
	return err
}

// noArgs refuses arguments.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// argCount wants so many arguments. format has the error, and in it the number of those that are given.
func argCount(least, most int, format string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef(format, len(args))
		}
		return nil
	}
}

func oneArg(what string) cobra.PositionalArgs {
	return argCount(1, 1, "want "+what+", got %d arguments")
}

func oneName(what string) cobra.PositionalArgs {
	return argCount(1, 1, "want the name of "+what+", got %d")
}

// oneOf completes a flag that takes one of a few words.
func oneOf[T ~string](cmd *cobra.Command, flag string, words []T) {
	// The flag was made by the caller: there is no other error.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(texts(words), cobra.ShellCompDirectiveNoFileComp))
}

// find returns where the relay is. That takes little of the configuration, and no part that may be wrong: see
// [config.Find]. Where the file lacks it, or can't be read, the relay's own announcement in a well-known place has it.
func (c *cli) find() (config.Whereabouts, error) {
	path := c.configPath()
	if path == "" {
		w := config.DefaultWhereabouts()
		if known, ok := c.announced(); ok && !exists(w.Socket) {
			w = known
		}
		return w, nil
	}
	w, err := config.Find(path, c.env)
	switch {
	case err == nil && w.Socket != "" && w.DataDir != "":
		return w, nil
	case err != nil && !errors.Is(err, fs.ErrPermission):
		return w, fmt.Errorf("reading the configuration: %w", err)
	}
	known, ok := c.announced()
	switch {
	case !ok && err != nil:
		return w, fmt.Errorf("reading the configuration: %w", err)
	case !ok:
		return w, nil
	}
	w.Hostname = cmp.Or(w.Hostname, known.Hostname)
	w.DataDir = cmp.Or(w.DataDir, known.DataDir)
	w.Socket = cmp.Or(w.Socket, known.Socket)
	w.Accounting = cmp.Or(w.Accounting, known.Accounting)
	if err != nil {
		w.SMTP = known.SMTP
	}
	return w, nil
}

// announced gives what the first relay in a well-known place says.
func (c *cli) announced() (config.Whereabouts, bool) {
	for _, dir := range c.wellKnown {
		if w, err := config.Announced(dir); err == nil {
			return w, true
		}
	}
	return config.Whereabouts{}, false
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// notRunning reports whether an error says that no relay runs, whose files can be read in its place.
func (c *cli) notRunning(err error) bool {
	return api.Down(err) && !errors.Is(err, fs.ErrPermission) && c.socketFlag == ""
}

// client gives the way to the running relay.
func (c *cli) client() (*api.Client, error) {
	if c.socketFlag != "" {
		return api.NewClient(c.socketFlag), nil
	}
	hint := "to do without the file, say where the control socket is: --socket"
	if c.configFlag == "" && c.env("MTA_CONFIG") != "" {
		hint = "MTA_CONFIG names the file; " + hint
	}
	w, err := c.find()
	if err != nil {
		return nil, hinted{err, hint}
	}
	if w.Socket == "" {
		return nil, hinted{
			fmt.Errorf("%s: the place of the control socket depends on an environment variable that is not set",
				c.configPath()), hint}
	}
	return api.NewClient(w.Socket), nil
}

// pathFault is why a file or directory can't be used, in plain words, and the remedy.
type pathFault struct{ text, remedy string }

// inPlain puts the system's words for a missing, closed or wrong kind of path, wherever they are in the text of an
// error, into plain ones, and gives the remedy; "" where there is none.
func inPlain(err error) (text, remedy string) {
	text = err.Error()
	var p *fs.PathError
	if !errors.As(err, &p) {
		return text, ""
	}
	f, known := faultOf(p)
	if !known {
		return text, ""
	}
	text = strings.Replace(text, p.Error(), f.text, 1)
	if twice := p.Path + ": " + f.text; text == twice || strings.HasSuffix(text, ": "+twice) {
		text = strings.TrimSuffix(text, twice) + f.text
	}
	if !strings.HasSuffix(text, f.text) {
		return text, "" // what follows is a remedy
	}
	return text, f.remedy
}

func faultOf(p *fs.PathError) (f pathFault, known bool) {
	switch {
	case errors.Is(p, fs.ErrNotExist):
		if above := filepath.Dir(p.Path); above != p.Path && !there(above) {
			for further := filepath.Dir(above); further != above && !there(further); further = filepath.Dir(above) {
				above = further
			}
			return pathFault{fmt.Sprintf("%s does not exist: there is no directory %s", p.Path, above),
				"check the path, or make the directory"}, true
		}
		return pathFault{fmt.Sprintf("%s does not exist", p.Path), "check the path"}, true
	case errors.Is(p, syscall.EISDIR):
		return pathFault{p.Path + " is a directory", "give a file"}, true
	case errors.Is(p, syscall.ENOTDIR):
		at := p.Path
		for above := filepath.Dir(at); above != at && !there(at); above = filepath.Dir(at) {
			at = above
		}
		return pathFault{at + " is not a directory", "give the path of a directory"}, true
	case errors.Is(p, fs.ErrPermission):
		return pathFault{fmt.Sprintf("%s may not use %s", whoAmI(), p.Path),
			"run the command as root or as the relay's user, or change the rights of the path"}, true
	}
	return pathFault{}, false
}

// there reports whether something is at a path, or could be for all that we may see.
func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// whoAmI names the user who runs the command.
func whoAmI() string {
	if u, err := user.LookupId(fmt.Sprint(os.Geteuid())); err == nil {
		return "the user " + u.Username
	}
	return fmt.Sprintf("the user with the id %d", os.Geteuid())
}

// version is set by the linker (see Makefile).
var version = ""

// build describes this binary. Commit and Date are empty when Go did not see the repository.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"` // of the commit, RFC 3339
	Changed bool   `json:"changed,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// thisBuild returns what the linker and Go recorded in this binary.
func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.fill(info)
	}
	b.Version = cmp.Or(b.Version, "unknown")
	return b
}

// fill adds what Go recorded. The linker's version has precedence.
func (b *build) fill(info *debug.BuildInfo) {
	b.Version = cmp.Or(b.Version, info.Main.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
}

// String is the line that 'mta version' prints.
func (b build) String() string {
	parts := []string{}
	if b.Commit != "" {
		commit := "commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Date != "" {
			commit += " of " + b.Date
		}
		if b.Changed {
			commit += " with uncommitted changes"
		}
		parts = append(parts, commit)
	}
	parts = append(parts, b.Go, b.OS+"/"+b.Arch)
	return fmt.Sprintf("mta %s (%s)", b.Version, strings.Join(parts, ", "))
}

func newVersion(c *cli) *cobra.Command {
	return prints(c, &cobra.Command{Use: "version", Short: "print the version", Args: noArgs},
		func(context.Context, []string) (build, error) { return thisBuild(), nil },
		func(b build) error {
			_, err := fmt.Fprintln(c.out, b)
			return err
		})
}
