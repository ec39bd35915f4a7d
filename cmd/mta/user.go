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
	"example.org/mta/operator/api"
	"example.org/mta/operator/web"
	"example.org/mta/submission/auth"
)

const userHelp = `Show and change the users file: the users who may log in at the relay's listeners (AUTH),
their tenants and their sender addresses. The configuration names the file,
users { file = "..." }; --file names another.

A change takes effect immediately, without a reload. These commands need no running relay.

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
	command string // the group of commands that changes it
	file    func() (path string, scheme auth.Scheme, err error)
}

// change changes a users file, with its lines in the audit log; a dry run only finds out whether it could.
func (b userBook) change(ctx context.Context, c *cli, f fileChange, change func(*auth.UserTable) error) error {
	f.action = strings.TrimPrefix(b.command, "mta ") + " " + f.action
	return c.changeFile(ctx, f, func() (int, error) {
		if err := (auth.File{Path: f.about.File, DryRun: f.dryRun}).UpdateUsers(change); err != nil {
			return 0, b.withRemedy(err)
		}
		return len(f.about.Names), nil
	})
}

// userBook is the file of those who may log in at listeners.
func (c *cli) userBook() userBook { return userBook{"mta user", c.usersFile} }

// usersFile returns which file is meant, and how passwords are hashed in it.
func (c *cli) usersFile() (path string, scheme auth.Scheme, err error) {
	path, cfg, err := c.fileOf(c.usersFlag, func(cfg *config.Config) string { return cfg.Users.File }, "users file",
		`add users { file = "/etc/mta/users" }`)
	if err != nil || cfg == nil {
		return path, auth.Argon2id, err
	}
	return path, cfg.Users.Scheme, nil
}

// newPassword is where a password comes from, if nobody types it.
type newPassword struct {
	Hash     bool `flag:"hash" help:"read a hash instead of the password"`
	Generate bool `flag:"generate" help:"generate a password and print it"`
}

// newUserOptions are what a user can be given.
type newUserOptions struct {
	newPassword
	Tenant       string   `flag:"tenant" help:"the user's <tenant>"`
	Senders      []string `flag:"senders" help:"the <addresses> and domains that the user may send as"`
	Certificates []string `flag:"certificate" help:"client <certificates> that log the user in"`
	NoPassword   bool     `flag:"no-password" help:"the user has no password, and logs in by certificate"`
	dryRun       bool
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
	fileFlags(cmd, &o.dryRun)
	return cmd
}

func (c *cli) userAdd(ctx context.Context, name string, o newUserOptions) error {
	u := &auth.User{Tenant: o.Tenant}
	for _, text := range o.Senders {
		s, err := auth.ParseSender(text)
		if err != nil {
			return usageError{err}
		}
		u.Senders = append(u.Senders, s)
	}
	for _, text := range o.Certificates {
		cert, err := auth.NormalCertificate(text)
		if err != nil {
			return usageError{err}
		}
		u.Certificates = append(u.Certificates, cert)
	}
	if o.NoPassword && len(u.Certificates) == 0 {
		return usagef("a user without a password needs a --certificate")
	}
	return c.addUser(ctx, c.userBook(), name, u, o)
}

// addUser gives a user a name and a password, and puts it into a file.
func (c *cli) addUser(ctx context.Context, book userBook, name string, u *auth.User, o newUserOptions) error {
	path, scheme, err := book.file()
	if err != nil {
		return err
	}
	if u.Name, err = auth.NormalName(name); err != nil {
		return usageError{err}
	}
	f := fileChange{"add", api.FileSubject{File: path, Names: []string{u.Name}, Tenant: u.Tenant, Role: u.Role},
		o.dryRun}
	put := func(t *auth.UserTable) error {
		if t.User(u.Name) != nil {
			return book.isThere(u.Name)
		}
		return t.Put(u)
	}
	if table, err := auth.LoadUsers(path); err == nil && table.User(u.Name) != nil {
		return book.change(ctx, c, f, put) // which is refused: nobody types a password for nothing
	}
	if !o.NoPassword && !o.dryRun {
		if u.Hash, err = c.newHash(scheme, o.newPassword); err != nil {
			return err
		}
	}
	if err := book.change(ctx, c, f, put); err != nil {
		return err
	}
	return c.did(o.dryRun, path, "added %s", u.Name)
}

func (b userBook) isThere(name string) error {
	return hinted{fmt.Errorf("user %q already exists", name), "'" + b.command + " password' changes its password"}
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
	if how.Hash {
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
		how    newPassword
		dryRun bool
	)
	cmd := &cobra.Command{
		Use: "password NAME", Short: "change a user's password",
		Long: `Change a user's password. The user's sessions end before their next message.`,
		Args: oneArg("the user's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, scheme, err := book.file()
			if err != nil {
				return err
			}
			name, err := auth.NormalName(args[0])
			if err != nil {
				return usageError{err}
			}
			f := fileChange{"password", api.FileSubject{File: path, Names: []string{name}}, dryRun}
			var h auth.Hash
			set := func(t *auth.UserTable) error {
				if t.User(name) == nil {
					return book.noUser(name)
				}
				t.SetHash(name, h)
				return nil
			}
			if table, err := auth.LoadUsers(path); err != nil || table.User(name) == nil {
				return book.change(cmd.Context(), c, f, set) // which is refused: nobody types a password for nothing
			}
			if !dryRun {
				if h, err = c.newHash(scheme, how); err != nil {
					return err
				}
			}
			if err := book.change(cmd.Context(), c, f, set); err != nil {
				return err
			}
			return c.did(dryRun, path, "%s has a new password", name)
		},
	}
	fileFlags(cmd, &dryRun)
	addFlags(cmd.Flags(), &how)
	cmd.MarkFlagsMutuallyExclusive("hash", "generate")
	return cmd
}

func (b userBook) noUser(name string) error {
	return hinted{fmt.Errorf("no such user: %q", name), "'" + b.command + " list' lists the users"}
}

// withRemedy adds how to repair a users file that can't be read.
func (b userBook) withRemedy(err error) error {
	var mode *smallfile.ModeError
	switch {
	case errors.As(err, &mode):
		return hinted{err, mode.Remedy()}
	case errors.Is(err, fs.ErrNotExist):
		return hinted{err, "'" + b.command + " add NAME' creates it"}
	}
	return err
}

func newUserRemove(c *cli, book userBook) *cobra.Command {
	var dryRun bool
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
			path, _, err := book.file()
			if err != nil {
				return err
			}
			f := fileChange{"remove", api.FileSubject{File: path, Names: args}, dryRun}
			err = book.change(cmd.Context(), c, f, func(t *auth.UserTable) error {
				for _, arg := range args {
					name, err := auth.NormalName(arg)
					if err != nil {
						return usageError{err}
					}
					if !t.Remove(name) {
						return book.noUser(name)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			return c.did(dryRun, path, "removed %s", joined(args))
		},
	}
	fileFlags(cmd, &dryRun)
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
		_, _, table, err := book.load()
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

// load reads the file.
func (b userBook) load() (path string, scheme auth.Scheme, table *auth.UserTable, err error) {
	if path, scheme, err = b.file(); err != nil {
		return "", "", nil, err
	}
	if table, err = auth.LoadUsers(path); err != nil {
		return "", "", nil, b.withRemedy(err)
	}
	return path, scheme, table, nil
}

func newUserCheck(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "check [NAME]", Short: "check the users file, or a user's password",
		Long: `Without a name, report every error in the users file, line by line. With one, prompt for
a password and check it. The exit status is 1 if a check fails.`,
		Args: argCount(0, 1, "want one user's name, got %d"),
		RunE: func(_ *cobra.Command, args []string) error {
			path, scheme, table, err := c.userBook().load()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				_, err = fmt.Fprintf(c.out, "%s: no errors, %s\n", path, plural(len(table.Users()), "user"))
				return err
			}
			return c.userCheck(table, args[0], scheme)
		},
	}
}

func (c *cli) userCheck(table *auth.UserTable, arg string, scheme auth.Scheme) error {
	name, err := auth.NormalName(arg)
	if err != nil {
		return usageError{err}
	}
	u := table.User(name)
	switch {
	case u == nil:
		return c.userBook().noUser(name)
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
	if !u.Hash.Is(scheme) {
		note = fmt.Sprintf("; its hash is %s, and will be %s after the next login", u.Hash.Scheme, scheme)
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
func (c *cli) consoleUserBook() userBook { return userBook{"mta console user", c.consoleUsersFile} }

func (c *cli) consoleUsersFile() (path string, scheme auth.Scheme, err error) {
	if c.usersFlag != "" {
		return c.usersFlag, auth.Argon2id, nil
	}
	path, _, err = c.fileOf("", func(cfg *config.Config) string { return cfg.Console.Users }, "users of the console",
		`add console { address = "127.0.0.1:8026", users = "/etc/mta/console-users" }`)
	return path, auth.Argon2id, err
}

func newConsoleUserAdd(c *cli, book userBook) *cobra.Command {
	var (
		o    newUserOptions
		role string
	)
	cmd := &cobra.Command{
		Use: "add NAME --role ROLE", Short: "add a user",
		Long: `Add a user with a role, and prompt for its password. --no-password is for a user whom a
proxy logs in (user_header of the block console).`,
		Example: `  mta console user add ann --role admin
  mta console user add wall --role viewer --generate`,
		Args: oneArg("the user's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(auth.Roles, role) {
				return usagef("--role: want %s, not %q", joined(auth.Roles), role)
			}
			return c.addUser(cmd.Context(), book, args[0], &auth.User{Role: role}, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "", "what the user may do: "+joined(auth.Roles))
	addFlags(f, &o.newPassword)
	f.BoolVar(&o.NoPassword, "no-password", false, "the user has no password: a proxy logs it in")
	cmd.MarkFlagsMutuallyExclusive("hash", "generate", "no-password")
	oneOf(cmd, "role", auth.Roles)
	fileFlags(cmd, &o.dryRun)
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
