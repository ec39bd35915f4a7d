package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/dnscheck"
	"example.org/mta/router/resolver"
)

const dkimCheckHelp = `Ask each name server of a key's zone for its record, and hold it against the private
key: for all keys of the configuration, or those of the blocks or domains NAME. The
servers are asked themselves, so that no cache hides a change, and none that lags behind
is missed. Keys that sign later are checked as well.

The exit status is 1 when a key that signs, or will sign, does not have its record at
every server. Of a key that is replaced nothing is a failure.`

// checkedKey is what a name server has for a key.
type checkedKey struct {
	Domain   string `json:"domain"`
	Selector string `json:"selector"`
	State    string `json:"state"`
	Server   string `json:"server"` // "" when none was found
	Result   string `json:"result"` // ok, testing, missing, wrong, or unknown
	Why      string `json:"why,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
	Alias    string `json:"alias,omitempty"` // where the record is found
	Failed   bool   `json:"failed"`
}

func newDKIMCheck(c *cli) *cobra.Command {
	var asJSON bool
	var servers []string
	cmd := &cobra.Command{
		Use:   "check [NAME...]",
		Short: "hold the published records against the keys",
		Long:  dkimCheckHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := c.dkimKeys(args)
			if err != nil {
				return err
			}
			asker, err := c.asker(servers)
			if err != nil {
				return err
			}
			found := []checkedKey{}
			for _, k := range keys {
				found = append(found, checkKey(cmd.Context(), asker, k)...)
			}
			return c.printKeys(found, asJSON)
		},
	}
	cmd.Flags().StringSliceVar(&servers, "server", nil, "ask this name `server`, \"address\" or \"address:port\", in place of the zone's own")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

const askTimeout = 5 * time.Second

// asker finds name servers by the resolvers of the configuration, or asks those that are given.
func (c *cli) asker(servers []string) (*dnscheck.Asker, error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	a := &dnscheck.Asker{Timeout: askTimeout, Resolvers: resolver.SystemServers()}
	if len(cfg.Resolver.Servers) > 0 {
		a.Resolvers = nil
		for _, s := range cfg.Resolver.Servers {
			at, err := serverAddress(s)
			if err != nil {
				return nil, err
			}
			a.Resolvers = append(a.Resolvers, at)
		}
	}
	for _, s := range servers {
		at, err := serverAddress(s)
		if err != nil {
			return nil, usagef("%v", err)
		}
		a.Servers = append(a.Servers, at)
	}
	return a, nil
}

func serverAddress(s string) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(ip, 53), nil
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil {
		return at, fmt.Errorf("%q is not the address of a name server: want \"192.0.2.53\" or \"192.0.2.53:53\"", s)
	}
	return at, nil
}

func checkKey(ctx context.Context, a *dnscheck.Asker, k dkimKey) []checkedKey {
	row := checkedKey{Domain: k.Domain, Selector: k.Selector, State: k.State}
	answers, err := a.TXT(ctx, k.Name)
	if err != nil {
		row.Result, row.Why, row.Failed = "unknown", err.Error(), k.State != "replaced"
		row.Remedy = "is the domain registered, and can this machine reach its resolver?"
		return []checkedKey{row}
	}
	var rows []checkedKey
	for _, ans := range answers {
		row := row
		row.Server, row.Alias = ans.Server, strings.TrimSuffix(ans.Alias, ".")
		row.judge(k, ans)
		row.Failed = k.State != "replaced" && row.Result != "ok"
		rows = append(rows, row)
	}
	return rows
}

// judge holds what a server has against a key.
func (row *checkedKey) judge(k dkimKey, ans dnscheck.Answer) {
	if ans.Err != nil {
		row.Result, row.Why = "unknown", ans.Err.Error()
		row.Remedy = "a receiver that asks this server learns nothing: see to it, or take it out of the zone's NS records"
		return
	}
	v := k.key.Judge(ans.Texts)
	row.Result, row.Why, row.Remedy = string(v.Result), v.Why, v.Remedy
}

// printKeys prints what was found, and fails when a key that is needed does not have its record.
func (c *cli) printKeys(found []checkedKey, asJSON bool) error {
	failed := false
	t := draw.Table{Columns: []draw.Column{{Title: "RECORD", Shrink: true}, {Title: "KEY"}, {Title: "SERVER", Shrink: true}, {Title: "RESULT"}}}
	for _, k := range found {
		failed = failed || k.Failed
		note := k.Why
		if k.Remedy != "" {
			note += ": " + k.Remedy
		}
		if k.Alias != "" {
			note = strings.TrimPrefix(note+"; found at "+k.Alias, "; ")
		}
		t.Add(note, k.Selector+"._domainkey."+k.Domain, k.State, k.Server, k.Result)
	}
	var err error
	if asJSON {
		err = writeJSON(c.out, map[string]any{"records": found})
	} else if len(found) > 0 {
		err = t.Write(c.out, c.screen)
	}
	if err == nil && failed {
		return exitError(exitFailed)
	}
	return err
}
