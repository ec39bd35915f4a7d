package kept

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"example.org/mta/internal/smallfile"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
)

// Users changes users, in their files or those that the nodes of a cluster share; it implements api.Users.
type Users struct {
	Listeners, Console func() *auth.Service // in force; nil without users
	// Behind waits for the other nodes of a cluster, and returns which don't know a change of a kind yet; "": all do.
	Behind func(ctx context.Context, kind string) string
}

func (a Users) ChangeUsers(ctx context.Context, o api.UserChange) (api.Effect, error) {
	return a.change(ctx, a.Listeners(), o, "mta user", `add users { file = "/etc/mta/users" } to the configuration`)
}

func (a Users) ChangeConsoleUsers(ctx context.Context, o api.UserChange) (api.Effect, error) {
	return a.change(ctx, a.Console(), o, "mta console user",
		`add console { address = "127.0.0.1:8026", users = "/etc/mta/console-users" } to the configuration`)
}

func (a Users) change(ctx context.Context, s *auth.Service, o api.UserChange, command, add string) (
	api.Effect, error) {
	if s == nil {
		return api.Effect{}, api.Invalid(add, "there is no users file")
	}
	f := s.Users()
	f.DryRun = o.DryRun
	u, err := UserOf(o)
	if err == nil {
		err = f.ChangeUsers(o.Action, o.Names, u)
	}
	if err != nil {
		return api.Effect{}, userError(err, command)
	}
	done := api.Effect{Count: len(o.Names)}
	if f.Users.On() && !o.DryRun {
		done.Behind = a.Behind(ctx, f.Users.Kind())
	}
	return done, nil
}

// UserOf returns what a change says of users.
func UserOf(o api.UserChange) (u auth.User, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", auth.ErrInvalidUser, err)
		}
	}()
	u.Tenant, u.Role = o.Tenant, o.Role
	for _, text := range o.Senders {
		s, err := auth.ParseSender(text)
		if err != nil {
			return u, err
		}
		u.Senders = append(u.Senders, s)
	}
	for _, text := range o.Certificates {
		c, err := auth.NormalCertificate(text)
		if err != nil {
			return u, err
		}
		u.Certificates = append(u.Certificates, c)
	}
	u.Hash, err = auth.ParseHash(o.Hash)
	return u, err
}

// userError puts an error about users into the API's words.
func userError(err error, command string) error {
	var mode *smallfile.ModeError
	switch {
	case errors.As(err, &mode):
		return api.Unavailable(mode.Remedy(), "%v", err)
	case errors.Is(err, fs.ErrPermission):
		return api.Unavailable("run '"+command+"' as the owner of the file, or let the relay's user write it and its "+
			"directory", "%v", err)
	case errors.Is(err, auth.ErrNoUser):
		return api.NotFound("'"+command+" list' lists the users", "%v", err)
	case errors.Is(err, auth.ErrUserExists):
		return api.Invalid("'"+command+" password' changes its password", "%v", err)
	case errors.Is(err, auth.ErrInvalidUser):
		return api.Invalid("", "%v", err)
	}
	return err
}
