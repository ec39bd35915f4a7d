package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
)

func newTLS(c *cli) *cobra.Command {
	return group("tls", "look up what domains demand of TLS", newTLSPolicy(c))
}

const tlsPolicyHelp = `Have the relay look up the MTA-STS policy of a domain (RFC 8461) now, whatever it has
cached, and print it: the mode, the hosts that mail may go to, and how long the policy
holds. A policy that has changed counts for mail within max_route_age (5 minutes).

When the policy can't be had, the one that is cached stands until it expires: the reason
is printed, and the exit code is 1. A domain that publishes none is no failure.`

func newTLSPolicy(c *cli) *cobra.Command {
	var asJSON, cached bool
	var in api.Intent
	cmd := &cobra.Command{
		Use:   "policy DOMAIN",
		Short: "look up the MTA-STS policy of a domain",
		Long:  tlsPolicyHelp,
		Example: `  mta tls policy example.com
  mta tls policy example.com --cached`,
		Args: oneName("a domain"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.tlsPolicy(cmd.Context(), args[0], cached, asJSON, in)
		},
	}
	cmd.Flags().BoolVar(&cached, "cached", false, "print what the relay has, and look nothing up")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	changeFlags(cmd, &in)
	return cmd
}

func (c *cli) tlsPolicy(ctx context.Context, domain string, cached, asJSON bool, in api.Intent) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	var p api.STSPolicy
	if cached {
		p, err = client.STSPolicy(ctx, domain)
	} else {
		var fresh api.STSRefreshed
		fresh, err = client.RefreshSTSPolicy(ctx, domain, in)
		if err == nil && !asJSON && c.wouldChange(fresh.Effect, "policy") {
			return nil
		}
		p = fresh.STSPolicy
	}
	if err != nil {
		return err
	}
	if asJSON {
		err = writeJSON(c.out, p)
	} else {
		var b strings.Builder
		c.stsFacts(&b, &p)
		_, err = io.WriteString(c.out, b.String())
	}
	if err == nil && !cached && p.Failure != "" && !(p.Absent && p.Fetched.IsZero()) {
		return errors.New("the policy can't be had: " + p.Failure)
	}
	return err
}

func (c *cli) stsFacts(b *strings.Builder, p *api.STSPolicy) {
	fact(b, "domain", "%s", p.Domain)
	fact(b, "policy", "%s", p.Mode)
	if p.Ignored != "" {
		fact(b, "", "not heeded, because of %s", p.Ignored)
	}
	for i, mx := range p.MX {
		name := ""
		if i == 0 {
			name = "hosts"
		}
		fact(b, name, "%s", mx)
	}
	if !p.Fetched.IsZero() {
		fact(b, "id", "%s", p.ID)
		fact(b, "fetched", "%s", moment(p.Fetched, c.now()))
		fact(b, "expires", "%s", moment(p.Expires, c.now()))
	}
	if p.Failure != "" {
		fact(b, "last try", "%s: %s", moment(p.Failed, c.now()), p.Failure)
	}
	fact(b, "next check", "%s", moment(p.Next, c.now()))
}

// stsLines is stsFacts among other facts.
func (c *cli) stsLines(b *strings.Builder, p *api.STSPolicy) {
	if !p.Fetched.IsZero() {
		fact(b, "", "MTA-STS policy %s: mode %s, hosts %s", p.ID, p.Mode, strings.Join(p.MX, ", "))
		fact(b, "", "fetched %s, expires %s", moment(p.Fetched, c.now()), moment(p.Expires, c.now()))
	}
	if p.Failure != "" {
		fact(b, "", "MTA-STS look-up failed %s: %s", moment(p.Failed, c.now()), p.Failure)
	}
	if p.Ignored != "" {
		fact(b, "", "the policy is not heeded, because of %s", p.Ignored)
	}
}
