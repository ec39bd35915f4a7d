package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/cmd/mta/sendmail"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

func newSendmail(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:                "sendmail [-t] [-i] [-f SENDER] [RECIPIENT...]",
		Short:              "submit a message to the relay, like sendmail",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return asExit(c.sendmail(args))
		},
	}
	cmd.Long = "Behave like sendmail. A link to mta under the name sendmail does the same. 'mta sendmail --help' lists the options."
	return cmd
}

// sendmail is the program of that name.
func (c *cli) sendmail(args []string) int {
	args, err := c.commonFlags(args)
	if err != nil {
		return c.sysexit("sendmail", sendmail.ExUsage, err)
	}
	o, err := sendmail.Parse(args)
	if err != nil {
		return c.sysexit("sendmail", sendmail.ExUsage, err)
	}
	if o.Config != "" {
		c.configFlag = o.Config
	}
	switch o.Mode {
	case sendmail.ModeHelp:
		fmt.Fprint(c.out, sendmail.Help)
		return sendmail.ExOK
	case sendmail.ModeList:
		return c.mailq(nil)
	case sendmail.ModeFlush:
		return c.sendmailFlush()
	case sendmail.ModeAliases:
		fmt.Fprintln(c.err, "sendmail: the relay has no aliases, there is nothing to build")
		return sendmail.ExOK
	case sendmail.ModeSMTP:
		l := c.local()
		return c.ended(sendmail.PassSMTP(c.in, c.out, &l))
	}
	return c.sendmailSend(o)
}

// sysexit reports an error under the name that the program was called by, and gives the code.
func (c *cli) sysexit(name string, code int, err error) int {
	fmt.Fprintf(c.err, "%s: %s\n", name, strings.ReplaceAll(draw.Clean(err.Error()), "\n", "\n"+name+": "))
	if hint := hintOf(err); hint != "" {
		fmt.Fprintf(c.err, "%s: %s\n", name, draw.Clean(hint))
	}
	return code
}

// local never fails for want of the configuration: mail must not be lost over a file that somebody
// else may be editing.
func (c *cli) local() sendmail.Local {
	w, err := c.find()
	known, announced := c.announced()
	switch {
	case err != nil && announced:
		w = known
	case err != nil:
		w = config.DefaultWhereabouts()
	}
	l := sendmail.Local{SMTP: c.env("MTA_SMTP"), Hostname: cmp.Or(w.Hostname, config.DefaultWhereabouts().Hostname)}
	if l.SMTP == "" {
		if !announced {
			l.Unknown = c.whyUnknown(&w, err)
		}
		l.Maildrop = filepath.Join(cmp.Or(w.DataDir, config.DefaultWhereabouts().DataDir), config.Maildrop)
		if w.SMTP == nil {
			w.SMTP = config.DefaultWhereabouts().SMTP
		}
		for _, address := range w.SMTP {
			if l.SMTP = config.Reachable(address); l.SMTP != "" {
				break
			}
		}
	}
	if u, err := user.Current(); err == nil {
		l.User = u.Username
	} else if l.User = c.env("LOGNAME"); l.User == "" {
		l.User = "nobody"
	}
	return l
}

// whyUnknown returns why nothing names the place of the relay, where no relay has written it down; "" when the
// configuration does.
func (c *cli) whyUnknown(w *config.Whereabouts, err error) string {
	why := ""
	switch path := c.configPath(); {
	case err != nil:
		why = err.Error()
	case path == "" && !exists(w.DataDir):
		why = "there is no configuration at " + defaultConfig
	case w.DataDir == "" || w.SMTP == nil:
		why = "in " + path + " it depends on an environment variable that is not set"
	default:
		return ""
	}
	if len(c.wellKnown) > 0 {
		why += fmt.Sprintf(", and no relay has written relay.json into %s", strings.Join(c.wellKnown, " or "))
	}
	return why
}

// ended gives the exit code after an error, or none, of sendmail.
func (c *cli) ended(err error) int {
	if err == nil {
		return sendmail.ExOK
	}
	return c.sysexit("sendmail", sendmail.Code(err), err)
}

func (c *cli) sendmailSend(o sendmail.Options) int {
	l := c.local()
	err := sendmail.Send(c.in, &l, o, c.env("NAME"))
	if err != nil && sendmail.Code(err) == sendmail.ExTempFail {
		fmt.Fprintln(c.err, "sendmail: the message was not sent: try again later")
	}
	return c.ended(err)
}

// sendmailFlush makes everything in the queue due.
func (c *cli) sendmailFlush() int {
	client, err := c.client()
	if err != nil {
		return c.sysexit("sendmail", sendmail.ExUnavailable, err)
	}
	_, err = client.Change(context.Background(), api.Change{Action: api.Retry, All: true})
	switch {
	case api.Down(err), errors.Is(err, os.ErrPermission):
		return c.sysexit("sendmail", sendmail.ExUnavailable, err)
	case err != nil:
		return c.sysexit("sendmail", sendmail.ExSoftware, err)
	}
	return sendmail.ExOK
}
