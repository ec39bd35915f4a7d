package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/bounce"
	"example.org/mta/bounce/report"
	"example.org/mta/bounce/returnpath"
	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/short"
	"example.org/mta/mta"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
)

func newBounce(c *cli) *cobra.Command {
	return group("bounce", "what comes back for mail that was sent", newBounceClassify(c), newBounceUnknown(c), newBounceToken(c), newBounceList(c), newBounceShow(c))
}

func newBounceList(c *cli) *cobra.Command {
	var p pageFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list inbound mail that the relay did not understand",
		Long: `List mail to an inbound domain that the relay did not understand and keeps, the newest first:
mail to postmaster@ and abuse@, bounces in a form that it doesn't know, replies by people.
The relay keeps 1000 messages and 64 MiB at most; then the oldest go.`,
		Example: `  mta bounce list
  mta bounce list --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return c.bounceList(cmd.Context(), &p)
		},
	}
	p.add(cmd, "messages")
	return cmd
}

func (c *cli) bounceList(ctx context.Context, p *pageFlags) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	l, err := collect(p, func(l *api.InboundList) (*[]api.InboundMail, *string) { return &l.Mail, &l.Next },
		func(after string, limit int) (api.InboundList, error) { return client.Inbound(ctx, after, limit) })
	switch {
	case err != nil:
		return err
	case p.asJSON:
		return writeJSON(c.out, l)
	case len(l.Mail) == 0:
		fmt.Fprintln(c.err, "no inbound mail is kept")
		return nil
	}
	t := &draw.Table{
		Columns:   []draw.Column{{Title: "ID"}, {Title: "AGE", Right: true}, {Title: "KIND"}, {Title: "FROM", Shrink: true}, {Title: "TO", Shrink: true}, {Title: "SIZE", Right: true}},
		NoteTitle: "SUBJECT",
	}
	for _, m := range l.Mail {
		t.Add(m.Subject, m.ID, short.Age(c.now().Sub(m.Time)), m.Kind, sentBy(&m), strings.Join(m.Recipients, ", "), short.Size(m.Size))
	}
	if err := t.Write(c.out, c.screen); err != nil {
		return err
	}
	if l.Next != "" {
		fmt.Fprintf(c.err, "%s shown of %d; for the next ones add: --after %q\n", plural(len(l.Mail), "message"), l.Kept, l.Next)
	}
	if l.Dropped > 0 {
		fmt.Fprintf(c.err, "%s deleted since the start of the relay, for space\n", plural(int(l.Dropped), "message"))
	}
	return nil
}

// sentBy is the author of a mail, or else its sender.
func sentBy(m *api.InboundMail) string {
	if m.From != "" {
		return m.From
	}
	return angled(m.Sender)
}

func newBounceShow(c *cli) *cobra.Command {
	var asJSON, content bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "show a message that 'mta bounce list' lists",
		Long: `Show what is known about a message, and its headers and body, with ? for control characters.
--content prints the message alone, and into a pipe or a file unchanged.`,
		Example: `  mta bounce show 0k7w1v0z8g002
  mta bounce show 0k7w1v0z8g002 --content >report.eml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want the id of one message, as in the first column of 'mta bounce list', got %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.bounceShow(cmd.Context(), args[0], asJSON, content)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what is known as JSON, without the content")
	cmd.Flags().BoolVar(&content, "content", false, "print the headers and the body alone")
	cmd.MarkFlagsMutuallyExclusive("json", "content")
	return cmd
}

func (c *cli) bounceShow(ctx context.Context, id string, asJSON, content bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if content && !c.screen.TTY {
		return client.InboundContent(ctx, id, c.out)
	}
	if !content {
		m, err := client.InboundMail(ctx, id)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(c.out, m)
		}
		c.inboundFacts(&m)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(client.InboundContent(ctx, id, w)) }()
	defer r.Close()
	return writeClean(c.out, r)
}

// inboundFacts prints what is known about a message beside its content, and a blank line.
func (c *cli) inboundFacts(m *api.InboundMail) {
	by := m.Peer
	if m.Helo != "" {
		by += " (" + m.Helo + ")"
	}
	for _, f := range []struct{ name, value string }{
		{"id", m.ID}, {"kind", m.Kind}, {"arrived", moment(m.Time, c.now())}, {"from", by}, {"sender", angled(m.Sender)},
		{"to", strings.Join(m.Recipients, ", ")}, {"about", m.Message}, {"size", short.Size(m.Size)},
	} {
		if f.value != "" {
			fmt.Fprintf(c.out, "%-8s %s\n", f.name, draw.Clean(f.value))
		}
	}
	fmt.Fprintln(c.out)
}

const bounceUnknownHelp = `Show the replies of hosts that no rule for classes knows (Uncategorized), by provider: how many
there were since the relay was started, and samples of them. Replies that differ in numbers and
addresses only count as one.

Give them a class with classify blocks in the configuration.`

func newBounceUnknown(c *cli) *cobra.Command {
	var provider string
	cmd := &cobra.Command{
		Use:   "unknown",
		Short: "show the replies that no rule for classes knows",
		Long:  bounceUnknownHelp,
		Args:  noArgs,
	}
	cmd.Flags().StringVar(&provider, "provider", "", "of this `provider` only; \"\": of sites without one")
	return answers(c, cmd, func(ctx context.Context, client *api.Client, _ []string) (api.UnknownList, error) {
		if !cmd.Flags().Changed("provider") {
			return client.UnknownReplies(ctx, nil)
		}
		return client.UnknownReplies(ctx, &provider)
	}, c.bounceUnknown)
}

func (c *cli) bounceUnknown(l api.UnknownList) error {
	if len(l.Unknown) == 0 {
		fmt.Fprintln(c.err, "no unknown replies since the relay was started")
		return nil
	}
	t := &draw.Table{Columns: []draw.Column{{Title: "PROVIDER"}, {Title: "COUNT", Right: true}, {Title: "AGE", Right: true}, {Title: "MESSAGE"}}, NoteTitle: "REPLY"}
	for _, of := range l.Unknown {
		left := of.Count
		for _, s := range of.Samples {
			left -= s.Count
			t.Add(strings.Join(strings.Fields(s.Reply.String()), " "), orDash(of.Provider), fmt.Sprint(s.Count), short.Age(c.now().Sub(s.Last)), orDash(s.Message))
		}
		if left > 0 {
			t.Add("others, of which no sample is kept", orDash(of.Provider), fmt.Sprint(left), "-", "-")
		}
	}
	return t.Write(c.out, c.screen)
}

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

const bounceClassifyHelp = `Read messages as the relay reads what comes back, and show for each FILE its kind, and
for each recipient that it names what became of the mail. A FILE is one message with its
header; "-" is standard input. No running relay is needed.

Kinds are bounce, delay, delivered, complaint, auto-reply, challenge, disposition,
unsubscribe and other. The exit status is 0 whatever the messages are, and 1 when a FILE
can't be read; the other files are read all the same. Only the first 256 KiB of a file
count. With --reply, TEXT is a host's answer: its class, the meaning, and the rule that matched
are shown.

The classify blocks of the configuration come before the built-in rules.`

// classifiedFile is what a file reports.
type classifiedFile struct {
	File    string          `json:"file"`
	Kind    report.Kind     `json:"kind"`
	Reports []report.Report `json:"reports"`

	unnamed *report.Report
}

func newBounceClassify(c *cli) *cobra.Command {
	var (
		asJSON         bool
		text, provider string
	)
	cmd := &cobra.Command{
		Use:   "classify {FILE... | --reply TEXT}",
		Short: "show how the relay reads a bounce or another report",
		Long:  bounceClassifyHelp,
		Args:  filesOrReply,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("reply") {
				return c.classifyReply(text, provider, asJSON)
			}
			classes := c.classifier()
			of := func(r *reply.Reply, _ string) bounce.Class { return classes.Of(r, provider) }
			read, failed := []classifiedFile{}, false
			for _, name := range args {
				f, err := c.classifyFile(name, of)
				if err != nil {
					c.printError(err)
					failed = true
					continue
				}
				read = append(read, f)
			}
			if err := c.printClassified(read, asJSON); err != nil {
				return err
			}
			if failed {
				return exitError(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&text, "reply", "", "classify this `text` of a host, such as '550 5.1.1 no such user'")
	cmd.Flags().StringVar(&provider, "provider", "", "apply the classify blocks of this `provider`, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each file, or for the reply")
	return cmd
}

// filesOrReply takes either files or a reply.
func filesOrReply(cmd *cobra.Command, args []string) error {
	switch given := cmd.Flags().Changed("reply"); {
	case given && len(args) > 0:
		return usagef("give files or --reply, not both")
	case given:
		return nil
	}
	return cobra.MinimumNArgs(1)(cmd, args)
}

// classifyFile reads the report in a file.
func (c *cli) classifyFile(name string, of func(*reply.Reply, string) bounce.Class) (classifiedFile, error) {
	in, shown, err := c.input(name)
	if err != nil {
		return classifiedFile{}, err
	}
	defer in.Close()
	content, err := io.ReadAll(io.LimitReader(in, report.MaxSize))
	if err != nil {
		if path := (*os.PathError)(nil); !errors.As(err, &path) {
			err = fmt.Errorf("reading %s: %w", shown, err)
		}
		return classifiedFile{}, err
	}
	r := report.Read(content, report.Options{Classify: of})
	f := classifiedFile{File: name, Kind: r.Kind, Reports: r.Reports, unnamed: r.Unnamed}
	if f.Reports == nil {
		f.Reports = []report.Report{}
	}
	return f, nil
}

func (c *cli) printClassified(files []classifiedFile, asJSON bool) error {
	if asJSON {
		e := newEncoder(c.out)
		for _, f := range files {
			if err := e.Encode(f); err != nil {
				return err
			}
		}
		return nil
	}
	t := &draw.Table{
		Columns:   []draw.Column{{Title: "FILE", Shrink: true}, {Title: "KIND"}, {Title: "RECIPIENT", Shrink: true}, {Title: "ACTION"}, {Title: "STATUS"}, {Title: "CODE"}, {Title: "CLASS"}, {Title: "HARD"}},
		NoteTitle: "DIAGNOSTIC",
	}
	for _, f := range files {
		rows := f.Reports
		if f.unnamed != nil {
			rows = []report.Report{*f.unnamed}
		}
		if len(rows) == 0 {
			rows = []report.Report{{}}
		}
		for _, r := range rows {
			t.Add(r.Diagnostic, append([]string{f.File, f.Kind.String(), orDash(r.Recipient)}, fateOf(r)...)...)
		}
	}
	return t.Write(c.out, c.screen)
}

// fateOf gives the cells of what became of a recipient: complaints, replies and the like have none.
func fateOf(r report.Report) []string {
	if r.Action == "" {
		return []string{"-", "-", "-", "-", "-"}
	}
	hard := "no"
	if r.Hard {
		hard = "yes"
	}
	return []string{string(r.Action), orDash(r.Status.String()), codeOrDash(r.Reply.Code), r.Class.String(), hard}
}

func codeOrDash(code int) string {
	if code == 0 {
		return "-"
	}
	return fmt.Sprint(code)
}

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
