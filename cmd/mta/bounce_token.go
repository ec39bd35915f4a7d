package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/cmd/mta/draw"
	"example.org/mta/mta"
	"example.org/mta/mta/config"
)

const bounceTokenHelp = `Show what an address of a return path (b-TOKEN@...), an address to unsubscribe
(u-TOKEN@...) or a TOKEN by itself names: message, recipient and day, and whether the relay
would accept mail for it now.

The secret of the configuration, or of its data_dir, decides: run this as root or as the
relay's user. No running relay is needed. The exit status is 1 for a token that is not
accepted.`

// namedByToken is what 'mta bounce token --json' prints.
type namedByToken struct {
	Token     string     `json:"token"`
	For       string     `json:"for,omitempty"` // bounce or unsubscribe
	Valid     bool       `json:"valid"`
	Why       string     `json:"why,omitempty"` // it is not
	Message   string     `json:"message,omitempty"`
	Recipient int        `json:"recipient,omitempty"` // counted from 1; 0: the token names none
	Day       string     `json:"day,omitempty"`
	Until     *time.Time `json:"until,omitempty"`
	Node      string     `json:"node,omitempty"`
	ThisNode  bool       `json:"this_node"`
	Key       *uint8     `json:"key,omitempty"`
	Signs     bool       `json:"key_signs"`
}

func newBounceToken(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "token {ADDRESS | TOKEN}",
		Short: "show the message that a return path names",
		Long:  bounceTokenHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one address or token, got %d", len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := c.config()
			if err != nil {
				return err
			}
			keys, err := mta.ReturnPathKeys(cfg)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				err = fmt.Errorf("%w: run this on the relay's machine, as root or as its user, with its configuration", err)
			}
			if err != nil {
				return err
			}
			named := nameToken(cfg, keys, args[0], c.now())
			if err := c.printToken(named, cfg.NodeID, asJSON); err != nil {
				return err
			}
			if !named.Valid {
				return exitError(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// nameToken reads an address or a token.
func nameToken(cfg *config.Config, keys *returnpath.Keys, address string, now time.Time) namedByToken {
	local, _, _ := strings.Cut(strings.Trim(address, "<>"), "@")
	purposes := []returnpath.Purpose{returnpath.Bounce, returnpath.Unsubscribe}
	if p, token, ok := returnpath.Cut(local); ok && len(local) != returnpath.Length {
		purposes, local = []returnpath.Purpose{p}, token
	}
	out := namedByToken{Token: local}
	for _, p := range purposes {
		t, err := keys.Read(p, local, now)
		if out.Why = ""; err != nil {
			out.Why = err.Error()
		}
		if err != nil && !errors.Is(err, returnpath.ErrExpired) {
			continue
		}
		out.For = map[returnpath.Purpose]string{returnpath.Bounce: "bounce", returnpath.Unsubscribe: "unsubscribe"}[p]
		out.Valid, out.Message, out.Recipient, out.Day = err == nil, t.Message.String(), t.Recipient+1, t.Day.Format(time.DateOnly)
		out.Node, out.ThisNode, out.Key, out.Signs = t.Node.String(), t.Node == returnpath.NodeOf(cfg.NodeID), &t.Key, t.Key == keys.Number()
		if until := keys.Until(t); !until.IsZero() {
			out.Until = &until
		}
		break
	}
	return out
}

func (c *cli) printToken(n namedByToken, nodeID string, asJSON bool) error {
	if asJSON {
		return writeJSON(c.out, n)
	}
	fact := func(name, text string) { fmt.Fprintf(c.out, "%-9s  %s\n", name, draw.Clean(text)) }
	if n.Message != "" {
		fact("for", map[string]string{"bounce": "bounces and complaints", "unsubscribe": "the recipient's unsubscription"}[n.For])
		fact("message", n.Message)
		recipient := "none: the transaction had several"
		if n.Recipient > 0 {
			recipient = fmt.Sprintf("number %d of the message", n.Recipient)
		}
		fact("recipient", recipient)
		fact("day", n.Day)
		fact("node", n.Node+map[bool]string{true: " (this relay)", false: " (another relay; this one is " + nodeID + ")"}[n.ThisNode])
		fact("key", fmt.Sprint(*n.Key)+map[bool]string{true: "", false: " (no longer signs)"}[n.Signs])
	}
	switch {
	case !n.Valid:
		fact("valid", "no: "+n.Why)
	case n.Until == nil:
		fact("valid", "yes")
	default:
		fact("valid", "yes, until "+n.Until.Format(time.DateOnly))
	}
	return nil
}
