package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/users"
)

const consoleUserHelp = `Show and change the users of the console that the relay serves, and their roles: a viewer
sees all but what messages say; an operator also acts on the queue, destinations, warm-up
and suppression; an admin also reads contents and the audit, and reloads the configuration.

The configuration names the file, console { users = "..." }; --file names another. A
change takes effect immediately: a session ends when its user's password or role changes.
'mta console' itself needs no users.`

func newConsoleUser(c *cli) *cobra.Command {
	book := c.consoleUserBook()
	g := group("user", "the users of the relay's console", newConsoleUserAdd(c, book), newUserPassword(c, book), newUserRemove(c, book), newConsoleUserList(c, book))
	g.Long = consoleUserHelp
	g.PersistentFlags().StringVar(&c.usersFlag, "file", "", "the users `file` (default: that of the configuration)")
	return g
}

// consoleUserBook is the file of those who may log in at the console.
func (c *cli) consoleUserBook() userBook { return userBook{"mta console user", c.consoleUsersFile} }

func (c *cli) consoleUsersFile() (path string, scheme users.Scheme, err error) {
	if c.usersFlag != "" {
		return c.usersFlag, users.Argon2id, nil
	}
	cfg, err := c.config()
	if err != nil {
		return "", "", err
	}
	if cfg.Console.Users == "" {
		return "", "", hinted{errors.New("the configuration has no users of the console"), `add console { address = "127.0.0.1:8026", users = "/etc/mta/console-users" } to it, or name a file with --file`}
	}
	return cfg.Console.Users, users.Argon2id, nil
}

func newConsoleUserAdd(c *cli, book userBook) *cobra.Command {
	var (
		o    newUserOptions
		role string
	)
	cmd := &cobra.Command{
		Use:   "add NAME --role ROLE",
		Short: "add a user",
		Long: `Add a user with a role, and prompt for its password. --no-password is for a user whom a
proxy logs in (user_header of the block console).`,
		Example: `  mta console user add ann --role admin
  mta console user add wall --role viewer --generate`,
		Args: oneArg("the user's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(users.Roles, role) {
				return usagef("--role: want %s, not %q", joined(users.Roles), role)
			}
			return c.addUser(cmd.Context(), book, args[0], &users.User{Role: role}, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "", "what the user may do: "+joined(users.Roles))
	f.BoolVar(&o.hash, "hash", false, "read a hash instead of the password")
	f.BoolVar(&o.generate, "generate", false, "generate a password and print it")
	f.BoolVar(&o.noPassword, "no-password", false, "the user has no password: a proxy logs it in")
	cmd.MarkFlagsMutuallyExclusive("hash", "generate", "no-password")
	oneOf(cmd, "role", users.Roles)
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
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list the users and their roles",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			path, _, err := book.file()
			if err != nil {
				return err
			}
			table, err := users.Load(path)
			if err != nil {
				return book.withRemedy(err)
			}
			list := []consoleUser{}
			t := &draw.Table{Columns: []draw.Column{{Title: "USER"}, {Title: "ROLE"}, {Title: "PASSWORD"}}}
			for _, u := range table.Users() {
				list = append(list, consoleUser{u.Name, u.Role, string(u.Hash.Scheme)})
				t.Add("", u.Name, cmp.Or(u.Role, "none"), cmp.Or(string(u.Hash.Scheme), "none"))
			}
			if asJSON {
				return writeJSON(c.out, map[string]any{"users": list})
			}
			return t.Write(c.out, c.screen)
		},
	}
	cmd.Long = fmt.Sprintf("List the users in the order of the file. A user without a role (%s) can't log in at the console.", strings.Join(users.Roles, ", "))
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
