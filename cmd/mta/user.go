package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/kept"
	"example.org/mta/operator/api"
	"example.org/mta/operator/web"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/shared"
)

const userHelp = `Show and change the users file: the users who may log in at the relay's listeners (AUTH),
their tenants and their sender addresses. The configuration names the file,
users { file = "..." }; --file names another.

A change takes effect immediately, without a reload. These commands need no running relay;
the nodes of a cluster share the users that a running one has.

The password is entered on the terminal or read from standard input, never an argument,
which other users can see.`

func newUser(c *cli) *cobra.Command {
	book := c.userBook()
	g := group("user", "the users who may log in", userHelp,
		newUserAdd(c), newUserPassword(c, book), newUserRemove(c, book), newUserList(c), newUserCheck(c))
	g.PersistentFlags().StringVar(&c.usersFlag, "file", "", "the users `file` (default: that of the configuration)")
	return g
}

// userBook is a users file for commands that are the same for each.
type userBook struct {
	command   string // the group of commands that changes it
	what, add string // it is, and its setting
	path      func(*config.Config) string
	entries   func(*config.Config) *shared.Entries[string, auth.User] // as which it is shared
	scheme    func(*config.Config) auth.Scheme                        // of passwords
	op        api.Op[api.UserChange, api.Effect]
}

// userBook is the file of those who may log in at listeners.
func (c *cli) userBook() userBook {
	return userBook{
		command: "mta user", what: "users file", add: `add users { file = "/etc/mta/users" }`, op: api.OpChangeUsers,
		path:    func(cfg *config.Config) string { return cfg.Users.File },
		entries: func(*config.Config) *shared.Entries[string, auth.User] { return auth.UserEntries },
		scheme:  func(cfg *config.Config) auth.Scheme { return cfg.Users.Scheme },
	}
}

// openBook is a userBook that was found.
type openBook struct {
	userBook
	file   string
	scheme auth.Scheme
	cfg    *config.Config    // nil when --file alone names the file, or counts
	shared *auth.SharedUsers // of the cluster, which count before the file; nil without one
}

func (b userBook) open(c *cli) (o openBook, err error) {
	o.userBook, o.scheme = b, auth.Argon2id
	o.file, o.cfg, err = c.fileOf(c.usersFlag, b.path, b.what, b.add)
	if err != nil || o.cfg == nil {
		return o, err
	}
	o.scheme = b.scheme(o.cfg)
	if c.usersFlag != "" {
		o.cfg = nil
		return o, nil
	}
	o.shared = sharedOf(c, o.cfg, "", b.entries(o.cfg))
	return o, nil
}

// load returns the users in force.
func (b openBook) load() (*auth.UserTable, error) {
	t, err := auth.UsersOver(b.shared, b.file)
	return t, b.withRemedy(err)
}

// change changes users: by the running relay where the nodes of a cluster share them, else in the file, with its lines
// in the audit log. ask is called for a password once all else could be done; nil: there is none. A dry run only finds
// out whether it could. It returns where the users are.
func (b openBook) change(
	ctx context.Context, c *cli, o api.UserChange, ask func() (auth.Hash, error)) (where string, err error) {
	trial := o
	trial.DryRun = true
	prompt := func() error {
		if ask == nil {
			return nil
		}
		h, err := ask()
		o.Hash = h.String()
		return err
	}
	done, err := c.inCluster(b.cfg, func() bool { return !b.shared.Empty() }, func(client *api.Client) error {
		_, err := b.op.Call(ctx, client, trial)
		if err == nil && !o.DryRun {
			err = prompt()
		}
		if err != nil || o.DryRun {
			return err
		}
		e, err := b.op.Call(ctx, client, o)
		c.behind(e)
		return err
	})
	if done || err != nil {
		return theCluster, err
	}
	refused := b.changeFile(trial)
	if refused == nil && !o.DryRun {
		if err := prompt(); err != nil {
			return "", err
		}
	}
	f := fileChange{strings.TrimPrefix(b.command, "mta ") + " " + o.Action,
		api.FileSubject{File: b.file, Names: o.Names, Tenant: o.Tenant, Role: o.Role}, o.DryRun}
	return b.file, c.changeFile(ctx, f, func() (int, error) {
		if refused == nil && !o.DryRun {
			refused = b.changeFile(o)
		}
		if refused != nil {
			return 0, refused
		}
		return len(o.Names), nil
	})
}

// changeFile changes the file. It refuses users whom the cluster knows, and the file not, or whom it has removed: the
// relay would not take that over.
func (b openBook) changeFile(o api.UserChange) error {
	u, err := kept.UserOf(o)
	if err != nil {
		return err
	}
	table, err := auth.LoadUsers(b.file)
	for _, name := range o.Names {
		in, known := b.shared.Find(name)
		if known && (in == nil || err != nil || table.User(name) == nil) {
			return hinted{fmt.Errorf("the cluster knows user %q otherwise than %s", name, b.file),
				"start the relay, or give the command at another node"}
		}
	}
	return b.withRemedy(auth.File{Path: b.file, DryRun: o.DryRun}.ChangeUsers(o.Action, o.Names, u))
}

// newPassword is where a password comes from, if nobody types it.
type newPassword struct {
	FromHash bool `flag:"hash" help:"read a hash instead of the password"`
	Generate bool `flag:"generate" help:"generate a password and print it"`
}

// newUserOptions are what a user can be given.
type newUserOptions struct {
	newPassword
	api.UserChange
	NoPassword bool `flag:"no-password" help:"the user has no password, and logs in by certificate"`
}

func newUserAdd(c *cli) *cobra.Command {
	var o newUserOptions
	cmd := &cobra.Command{
		Use: "add NAME", Short: "add a user",
		Long: `Add a user, and prompt for its password. An existing name is refused.

--senders limits the sender addresses: domains (acme.example), all domains below one
(*.acme.example), or addresses (news@b.example); those of the tenant also apply.
--certificate logs the user in by a client certificate: "sha256:" and its fingerprint,
or a name in it if the listener has a client_ca.

--hash reads a hash instead of the password: bcrypt, SHA-512-crypt ($6$), argon2id, or
{SCRAM-SHA-256}, also with Dovecot's name in braces before it.`,
		Example: `  mta user add ann@acme.example --tenant acme
  mta user add shop --tenant acme --senders acme.example,news@b.example --generate
  echo '{BLF-CRYPT}$2y$05$...' | mta user add bob --hash
  mta user add app1 --certificate app1.acme.example --no-password`,
		Args: oneArg("the user's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.userAdd(cmd.Context(), args[0], o) },
	}
	addFlags(cmd.Flags(), &o)
	cmd.MarkFlagsMutuallyExclusive("hash", "generate", "no-password")
	fileFlags(cmd, &o.DryRun)
	return cmd
}

func (c *cli) userAdd(ctx context.Context, name string, o newUserOptions) error {
	if _, err := kept.UserOf(o.UserChange); err != nil {
		return usageError{err}
	}
	if o.NoPassword && len(o.Certificates) == 0 {
		return usagef("a user without a password needs a --certificate")
	}
	return c.addUser(ctx, c.userBook(), name, o)
}

// addUser adds a user with a password.
func (c *cli) addUser(ctx context.Context, book userBook, name string, o newUserOptions) error {
	b, err := book.open(c)
	if err != nil {
		return err
	}
	if name, err = auth.NormalName(name); err != nil {
		return usageError{err}
	}
	ask := func() (auth.Hash, error) { return c.newHash(b.scheme, o.newPassword) }
	if o.NoPassword {
		ask = nil
	}
	o.Action, o.Names = "add", []string{name}
	where, err := b.change(ctx, c, o.UserChange, ask)
	if err != nil {
		return err
	}
	return c.did(o.DryRun, where, "added %s", name)
}

// newHash reads or makes a password, or reads a hash.
func (c *cli) newHash(scheme auth.Scheme, how newPassword) (auth.Hash, error) {
	if how.Generate {
		password := rand.Text()
		h, err := auth.NewHash(scheme, password)
		if err == nil {
			_, err = fmt.Fprintf(c.out, "password: %s\n", password)
		}
		return h, err
	}
	if how.FromHash {
		text, err := c.readSecret("Hash: ")
		if err != nil {
			return auth.Hash{}, err
		}
		if text == "" {
			return auth.Hash{}, errors.New("the hash is empty")
		}
		return auth.ParseHash(text)
	}
	password, err := c.readSecret("Password: ")
	if err != nil {
		return auth.Hash{}, err
	}
	if c.onTerminal() {
		again, err := c.readSecret("Again: ")
		if err != nil {
			return auth.Hash{}, err
		}
		if again != password {
			return auth.Hash{}, errors.New("the two passwords differ")
		}
	}
	return auth.NewHash(scheme, password)
}

// onTerminal reports whether somebody types.
func (c *cli) onTerminal() bool {
	f, ok := c.in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// readSecret asks for a line that is not shown, or reads it from standard input.
func (c *cli) readSecret(prompt string) (string, error) {
	if c.onTerminal() {
		fmt.Fprint(c.err, prompt)
		text, err := term.ReadPassword(int(c.in.(*os.File).Fd()))
		fmt.Fprintln(c.err)
		return string(text), err
	}
	line, err := bufio.NewReader(io.LimitReader(c.in, 64<<10)).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}

func newUserPassword(c *cli, book userBook) *cobra.Command {
	var (
		how newPassword
		o   api.UserChange
	)
	cmd := &cobra.Command{
		Use: "password NAME", Short: "change a user's password",
		Long: `Change a user's password. The user's sessions end before their next message.`,
		Args: oneArg("the user's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeUsers(cmd.Context(), book, o, "password", args, &how, "%s has a new password")
		},
	}
	fileFlags(cmd, &o.DryRun)
	addFlags(cmd.Flags(), &how)
	cmd.MarkFlagsMutuallyExclusive("hash", "generate")
	return cmd
}

// changeUsers changes users that are there; how: their password. did says what was done.
func (c *cli) changeUsers(
	ctx context.Context, book userBook, o api.UserChange, action string, names []string, how *newPassword, did string,
) error {
	b, err := book.open(c)
	if err != nil {
		return err
	}
	o.Action = action
	for _, arg := range names {
		name, err := auth.NormalName(arg)
		if err != nil {
			return usageError{err}
		}
		o.Names = append(o.Names, name)
	}
	var ask func() (auth.Hash, error)
	if how != nil {
		ask = func() (auth.Hash, error) { return c.newHash(b.scheme, *how) }
	}
	where, err := b.change(ctx, c, o, ask)
	if err != nil {
		return err
	}
	return c.did(o.DryRun, where, did, joined(o.Names))
}

// withRemedy adds how to repair a users file that can't be read.
func (b userBook) withRemedy(err error) error {
	var mode *smallfile.ModeError
	switch {
	case errors.As(err, &mode):
		return hinted{err, mode.Remedy()}
	case errors.Is(err, fs.ErrNotExist):
		return hinted{err, "'" + b.command + " add NAME' creates it"}
	case errors.Is(err, auth.ErrUserExists):
		return hinted{err, "'" + b.command + " password' changes its password"}
	case errors.Is(err, auth.ErrNoUser):
		return hinted{err, "'" + b.command + " list' lists the users"}
	}
	return err
}

func newUserRemove(c *cli, book userBook) *cobra.Command {
	var o api.UserChange
	cmd := &cobra.Command{
		Use: "remove NAME...", Short: "remove users",
		Long: "Remove users. Their sessions end before their next message.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("user names are required")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeUsers(cmd.Context(), book, o, "remove", args, nil, "removed %s")
		},
	}
	fileFlags(cmd, &o.DryRun)
	return cmd
}

// listedUser is a user for tables and JSON.
type listedUser struct {
	Name         string   `json:"name"`
	Password     string   `json:"password"` // how it is hashed, "" without one
	Tenant       string   `json:"tenant,omitempty"`
	Senders      []string `json:"senders"` // none: all that the tenant's allow
	Certificates []string `json:"certificates"`
}

func newUserList(c *cli) *cobra.Command {
	return c.userListing(c.userBook(), &cobra.Command{
		Use: "list", Short: "list the users",
		Long: `List the users, in the order of the file. PASSWORD is the type of the hash: a password with
another hash than the configured one is rehashed at the user's next login.`,
		Args: noArgs,
	}, func(u *auth.User) any {
		return listedUser{u.Name, string(u.Hash.Scheme), u.Tenant, append([]string{}, texts(u.Senders)...),
			append([]string{}, u.Certificates...)}
	}, func(u *auth.User) []any {
		return []any{u.Name, cmp.Or(string(u.Hash.Scheme), "none"), cmp.Or(u.Tenant, "-"),
			cmp.Or(joined(u.Senders), "any"),
			cmp.Or(joined(u.Certificates), "-")}
	}, "USER", "PASSWORD", "TENANT", "~SENDERS", "~-CERTIFICATES")
}

// userListing makes a command list a users file: as JSON what object makes of each user, else a table of its cells.
func (c *cli) userListing(
	book userBook, cmd *cobra.Command, object func(*auth.User) any, cells func(*auth.User) []any, titles ...string,
) *cobra.Command {
	t := draw.New("", titles...)
	return prints(c, cmd, func(context.Context, []string) (map[string]any, error) {
		b, err := book.open(c)
		if err != nil {
			return nil, err
		}
		table, err := b.load()
		if err != nil {
			return nil, err
		}
		list := []any{}
		for _, u := range table.Users() {
			list = append(list, object(u))
			t.Add("", cells(u)...)
		}
		return map[string]any{"users": list}, nil
	}, func(map[string]any) error { return t.Write(c.out, c.screen) })
}

func newUserCheck(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "check [NAME]", Short: "check the users file, or a user's password",
		Long: `Without a name, report every error in the users file, line by line. With one, prompt for
a password and check it. The exit status is 1 if a check fails.`,
		Args: argCount(0, 1, "want one user's name, got %d"),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := c.userBook().open(c)
			if err != nil {
				return err
			}
			table, err := b.load()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				_, err = fmt.Fprintf(c.out, "%s: no errors, %s\n", b.file, plural(len(table.Users()), "user"))
				return err
			}
			return c.userCheck(b, table, args[0])
		},
	}
}

func (c *cli) userCheck(b openBook, table *auth.UserTable, arg string) error {
	name, err := auth.NormalName(arg)
	if err != nil {
		return usageError{err}
	}
	u := table.User(name)
	switch {
	case u == nil:
		return b.withRemedy(fmt.Errorf("%w: %q", auth.ErrNoUser, name))
	case u.Hash.Scheme == "":
		return fmt.Errorf("user %q has no password", name)
	}
	password, err := c.readSecret("Password: ")
	if err != nil {
		return err
	}
	if !u.Hash.Verify(password) {
		return fmt.Errorf("the password of user %q does not match", name)
	}
	note := ""
	if !u.Hash.Is(b.scheme) {
		note = fmt.Sprintf("; its hash is %s, and will be %s after the next login", u.Hash.Scheme, b.scheme)
	}
	_, err = fmt.Fprintf(c.out, "correct password of %s%s\n", name, note)
	return err
}

const consoleUserHelp = `Show and change the users of the console that the relay serves.
A viewer sees all except the content of messages; an operator also acts on the queue,
destinations, warm-up and suppression; an admin also reads contents and the audit log,
and reloads the configuration.

The configuration names the file, console { users = "..." }; --file names another. A
change takes effect immediately, and ends the sessions of a user whose password or role
changes.`

func newConsoleUser(c *cli) *cobra.Command {
	book := c.consoleUserBook()
	g := group("user", "the users of the relay's console", consoleUserHelp,
		newConsoleUserAdd(c, book), newUserPassword(c, book), newUserRemove(c, book), newConsoleUserList(c, book))
	g.PersistentFlags().StringVar(&c.usersFlag, "file", "", "the users `file` (default: that of the configuration)")
	return g
}

// consoleUserBook is the file of those who may log in at the console.
func (c *cli) consoleUserBook() userBook {
	return userBook{
		command: "mta console user", what: "users of the console", op: api.OpChangeConsoleUsers,
		add:     `add console { address = "127.0.0.1:8026", users = "/etc/mta/console-users" }`,
		path:    func(cfg *config.Config) string { return cfg.Console.Users },
		entries: wiring.ConsoleUsers,
		scheme:  func(*config.Config) auth.Scheme { return auth.Argon2id },
	}
}

func newConsoleUserAdd(c *cli, book userBook) *cobra.Command {
	var o newUserOptions
	cmd := &cobra.Command{
		Use: "add NAME --role ROLE", Short: "add a user",
		Long: `Add a user with a role, and prompt for its password. --no-password is for a user whom a
proxy logs in (user_header of the block console).`,
		Example: `  mta console user add ann --role admin
  mta console user add wall --role viewer --generate`,
		Args: oneArg("the user's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(auth.Roles, o.Role) {
				return usagef("--role: want %s, not %q", joined(auth.Roles), o.Role)
			}
			return c.addUser(cmd.Context(), book, args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Role, "role", "", "what the user may do: "+joined(auth.Roles))
	addFlags(f, &o.newPassword)
	f.BoolVar(&o.NoPassword, "no-password", false, "the user has no password: a proxy logs it in")
	cmd.MarkFlagsMutuallyExclusive("hash", "generate", "no-password")
	oneOf(cmd, "role", auth.Roles)
	fileFlags(cmd, &o.DryRun)
	return cmd
}

// consoleUser is a user of the console for tables and JSON.
type consoleUser struct {
	Name     string `json:"name"`
	Role     string `json:"role"`     // "": none, the user can't log in
	Password string `json:"password"` // how it is hashed, "" without one
}

func newConsoleUserList(c *cli, book userBook) *cobra.Command {
	return c.userListing(book, &cobra.Command{
		Use: "list", Short: "list the users and their roles", Args: noArgs,
		Long: "List the users in the order of the file. A user without a role can't log in at the console.",
	}, func(u *auth.User) any { return consoleUser{u.Name, u.Role, string(u.Hash.Scheme)} },
		func(u *auth.User) []any {
			return []any{u.Name, cmp.Or(u.Role, "none"), cmp.Or(string(u.Hash.Scheme), "none")}
		}, "USER", "ROLE", "PASSWORD")
}

const consoleHelp = `Serve the console, web pages that show and control the relay, on
this machine's loopback address until interrupted. The command prints a link that logs
in once, within a minute; press Enter for another one.

Users of the control socket may use this console. The audit log names the user who runs
the command.

On a remote machine, choose a port and forward it:

  ssh -L 8026:127.0.0.1:8026 mta1.example.com mta console --port 8026

The relay itself can serve the console, for users with names and roles: see the block
console of the configuration, and 'mta console user'.`

func newConsole(c *cli) *cobra.Command {
	var (
		readOnly bool
		port     int
	)
	cmd := &cobra.Command{
		Use: "console", Short: "serve the console, pages for a browser", Long: consoleHelp,
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
	if _, err := api.OpStatus.Call(ctx, client, api.None{}); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("listening for browsers: %w", err)
	}
	port = l.Addr().(*net.TCPAddr).Port
	server, err := web.New(web.Config{Relay: client, ReadOnly: readOnly,
		CookieSuffix: "-" + strconv.Itoa(port), Now: c.now})
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

// printLink prints a link that logs in, for the user who has run the command.
func (c *cli) printLink(s *web.Server, port int) {
	who := web.Identity{User: userName(), Role: web.Admin}
	fmt.Fprintf(c.out, "http://127.0.0.1:%d%s\n", port, s.Ticket(who))
	fmt.Fprintln(c.err,
		"open the link within a minute; it is good once. Enter prints another one, interrupt ends the console")
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
