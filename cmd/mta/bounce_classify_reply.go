package main

import (
	"fmt"
	"strings"

	"example.org/mta/bounce"
	"example.org/mta/bounce/report"
	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/wiring"
)

// classifier has the rules of the configuration, if it can be read. They are worth a try without it, too:
// the built-in ones need none.
func (c *cli) classifier() *bounce.Classifier {
	classes := new(bounce.Classifier)
	cfg, err := c.config()
	if err != nil {
		c.printError(fmt.Errorf("classify blocks are not used, since the configuration can't be read: %w", err))
		return classes
	}
	classes.SetRules(wiring.Classify(cfg))
	return classes
}

// classifiedReply is what a reply means, in the form of a file's line.
type classifiedReply struct {
	Kind    report.Kind     `json:"kind"`
	Reports []report.Report `json:"reports"`
	// Rule is the classify block that decided; "" when it was a built-in rule.
	Rule string `json:"rule,omitempty"`
}

func (c *cli) classifyReply(text, provider string, asJSON bool) error {
	r := readReply(text)
	class, rule := c.classifier().Explain(&r, provider)
	out := classifiedReply{Kind: report.Bounce, Rule: rule}
	said := report.Report{Action: report.ActionFailed, Status: r.Status(), Reply: r, Class: class,
		Hard: class.Hard() && r.Permanent(), Diagnostic: strings.Join(strings.Fields(draw.Clean(r.String())), " ")}
	switch {
	case r.OK():
		out.Kind, said.Action = report.Delivered, report.ActionDelivered
	case r.Temporary():
		out.Kind, said.Action = report.Delay, report.ActionDelayed
	}
	out.Reports = []report.Report{said}
	if asJSON {
		return newEncoder(c.out).Encode(out)
	}
	if class == bounce.None {
		fmt.Fprintln(c.out, "The reply is no refusal.")
		return nil
	}
	by := "built in"
	switch {
	case rule != "":
		by = fmt.Sprintf("classify %q", rule)
	case class == bounce.Uncategorized:
		by = "none"
	}
	hard := "no"
	if said.Hard {
		hard = "yes"
	}
	for _, line := range [][2]string{{"class", class.String() + ": " + class.Meaning()}, {"hard", hard}, {"status", said.Status.String()}, {"rule", by},
		{"PowerMTA", class.PowerMTA()}, {"SparkPost", fmt.Sprint(class.SparkPost())}} {
		if _, err := fmt.Fprintf(c.out, "%-9s  %s\n", line[0], draw.Clean(line[1])); err != nil {
			return err
		}
	}
	return nil
}

// readReply reads a reply as a log or a host has it: each line of several may begin with code and status.
// One without a code is taken for a refusal for good.
func readReply(text string) reply.Reply {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	var all reply.Reply
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if len(line) == 3 {
			line += " "
		}
		r := reply.Parse(line)
		if r.Code < 200 || r.Code > 599 || !strings.ContainsRune(" -", rune(line[3])) {
			code := "550 "
			if strings.HasPrefix(line, "4.") {
				code = "450 "
			}
			r = reply.Parse(code + line)
		}
		switch {
		case all.Text == "":
			all = r
		case r.Text != "":
			all.Text += "\n" + r.Text
		}
	}
	if all.Code == 0 { // there is no text
		all.Code = 550
	}
	return all
}
