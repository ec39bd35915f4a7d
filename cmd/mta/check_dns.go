package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/dnscheck"
	"example.org/mta/mta/check"
)

// dnsFindings is what 'mta check --dns --json' prints.
type dnsFindings struct {
	Findings []dnscheck.Finding `json:"findings"`
	Failed   int                `json:"failed"`
	Warnings int                `json:"warnings"`
	Unknown  int                `json:"unknown"` // could not be checked
}

// checkDNS prints what receivers will think of mail, and fails when they would refuse or distrust it,
// or, if it is strict, when something could be better.
func (c *cli) checkDNS(ctx context.Context, q check.DNSQuestion, asJSON, strict bool) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	found, err := check.DNS(ctx, cfg, c.now(), q)
	if err != nil {
		return usagef("%v", err)
	}
	if len(q.Domains) == 0 && len(cfg.SenderDomains()) == 0 {
		fmt.Fprintln(c.err, "mta: no sender's domain is checked, since the configuration names none; name one with --domain")
	}
	sum := dnsFindings{found, dnscheck.Count(found, dnscheck.Failed), dnscheck.Count(found, dnscheck.Warning), dnscheck.Count(found, dnscheck.Unknown)}
	if asJSON {
		err = writeJSON(c.out, sum)
	} else {
		err = sum.write(c.out, c.screen)
	}
	if err == nil && (sum.Failed > 0 || strict && sum.Warnings > 0) {
		return exitError(exitFailed)
	}
	return err
}

// write prints the findings under what they are about.
func (f *dnsFindings) write(w io.Writer, s draw.Screen) error {
	var b strings.Builder
	about := ""
	for _, finding := range f.Findings {
		if subject := subjectOf(finding); subject != about {
			if about = subject; b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(draw.Clean(subject) + "\n")
		}
		line := "  " + s.Coloured(string(finding.Result), colourOf(string(finding.Result))) + strings.Repeat(" ", max(1, 9-len(finding.Result))) + draw.Clean(finding.Text)
		b.WriteString(draw.Wrap(line, s.Width, findingIndent) + "\n")
		writeRemedy(&b, finding, s.Width)
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d failed, %s, %d could not be checked\n", f.Failed, plural(f.Warnings, "warning"), f.Unknown)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRemedy prints what to do. A record to publish stays on one line, to be copied.
func writeRemedy(b *strings.Builder, f dnscheck.Finding, width int) {
	indent := strings.Repeat(" ", findingIndent)
	if f.Remedy != "" {
		end := ""
		if f.Record != "" {
			end = ":"
		}
		b.WriteString(draw.Wrap(indent+"-> "+draw.Clean(f.Remedy)+end, width, findingIndent+3) + "\n")
	}
	if f.Record != "" {
		b.WriteString(indent + "   " + draw.Clean(f.Record) + "\n")
	}
}

const findingIndent = 11

// subjectOf is the source, domain or listener that a finding is about.
func subjectOf(f dnscheck.Finding) string {
	switch {
	case f.Domain != "":
		return "domain " + f.Domain
	case f.Listener != "":
		return "listener " + f.Listener
	case f.Address.IsValid():
		return fmt.Sprintf("source %s, %s", f.Source, f.Address)
	}
	return "source " + f.Source
}
