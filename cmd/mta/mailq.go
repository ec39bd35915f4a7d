package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/cmd/mta/sendmail"
	"example.org/mta/operator/api"
)

func newMailq(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:                "mailq",
		Short:              "list the queue in the format of mailq",
		Long:               mailqHelp,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return asExit(c.mailq(args))
		},
	}
}

// asExit carries an exit code through cobra.
func asExit(code int) error {
	if code == exitDone {
		return nil
	}
	return exitError(code)
}

const mailqHelp = `List the whole queue in the format of Postfix's mailq: * after the id marks active
messages, ! held ones. A link to mta under the name mailq does the same.`

const mailqHead = "----Queue ID----- --Size-- ---Arrival Time---- --Sender/Recipient------\n"

// mailq lists the queue as Postfix does: * marks what is being tried, ! what is held.
func (c *cli) mailq(args []string) int {
	args, err := c.commonFlags(args)
	if err != nil {
		return c.sysexit("mailq", sendmail.ExUsage, err)
	}
	for _, arg := range args {
		if arg == "--help" {
			fmt.Fprint(c.out, "usage: mailq [--config FILE] [--socket SOCKET]\n\n"+mailqHelp+"\n")
			return sendmail.ExOK
		}
		// Sendmail's has -v and -Ac and the like, for details that this one shows anyway.
		if !strings.HasPrefix(arg, "-") {
			return c.sysexit("mailq", sendmail.ExUsage, fmt.Errorf("unexpected argument %q", arg))
		}
	}
	client, err := c.client()
	if err != nil {
		return c.sysexit("mailq", sendmail.ExUnavailable, err)
	}
	messages, octets := 0, int64(0)
	_, err = eachPage(context.Background(), client, api.Filter{}, api.Page{}, func(l api.List) error {
		if messages == 0 && len(l.Messages) > 0 {
			fmt.Fprint(c.out, mailqHead)
		}
		for _, m := range l.Messages {
			messages++
			octets += m.Size
			c.mailqMessage(m)
		}
		return nil
	})
	switch {
	case api.Down(err):
		return c.sysexit("mailq", sendmail.ExUnavailable, err)
	case err != nil:
		return c.sysexit("mailq", sendmail.ExSoftware, err)
	case messages == 0:
		fmt.Fprintln(c.out, "Mail queue is empty")
		return sendmail.ExOK
	}
	fmt.Fprintf(c.out, "-- %d Kbytes in %d Request%s.\n", octets/1024, messages, ending(messages))
	return sendmail.ExOK
}

func ending(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func (c *cli) mailqMessage(m api.Item) {
	sender := m.Sender
	if sender == "" {
		sender = "MAILER-DAEMON"
	}
	fmt.Fprintf(c.out, "%-17s%8d %-20s %s\n", m.ID+mailqMark(m), m.Size, m.Received.Local().Format(time.ANSIC)[:19], draw.Clean(sender))
	last := ""
	for _, r := range m.Recipients {
		if why := r.Why(time.Local); why != last && why != "" {
			fmt.Fprintf(c.out, "%*s\n", 80, "("+draw.Clean(why)+")")
			last = why
		}
		fmt.Fprintf(c.out, "%39s%s\n", "", draw.Clean(r.Address))
	}
	fmt.Fprintln(c.out)
}

func mailqMark(m api.Item) string {
	held := len(m.Recipients) > 0
	for _, r := range m.Recipients {
		if r.State == api.StateActive {
			return "*"
		}
		held = held && r.State == api.StateHeld
	}
	if held {
		return "!"
	}
	return ""
}

// commonFlags takes --config and --socket out of the arguments of a command that reads the rest
// itself.
func (c *cli) commonFlags(args []string) (rest []string, err error) {
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		to := map[string]*string{"--config": &c.configFlag, "--socket": &c.socketFlag}[name]
		switch {
		case args[i] == "--":
			return append(rest, args[i:]...), nil
		case to == nil:
			rest = append(rest, args[i])
		case given:
			*to = value
		case i+1 == len(args):
			return nil, errors.New(name + " needs a value")
		default:
			i++
			*to = args[i]
		}
	}
	return rest, nil
}
