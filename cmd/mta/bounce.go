package main

import (
	"cmp"
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
	"example.org/mta/internal/legible"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
)

func newBounce(c *cli) *cobra.Command {
	return group("bounce", "what comes back for mail that was sent", "", newBounceTop(c),
		newBounceClassify(c), newBounceUnknown(c), newBounceToken(c), newBounceList(c), newBounceShow(c))
}

const bounceTopHelp = `Count why mail bounced for good, in the accounting log of the last day: the most
frequent replies, with their classes. Replies that differ in numbers and addresses only
count as one. The records are those of the types Bounce, Expiration and OOB (bounces
that came back as mail).

'mta log --count-by' counts other records. Without a running relay the command reads
the files.`

func newBounceTop(c *cli) *cobra.Command {
	q := api.LogCountQuery{By: "reply", LogQuery: api.LogQuery{Types: api.BounceTypes}}
	var asJSON, all bool
	cmd := &cobra.Command{
		Use: "top", Short: "count why mail bounced", Long: bounceTopHelp, Args: noArgs,
		Example: `  mta bounce top
  mta bounce top --since 1h --tenant acme
  mta bounce top --by site --class SpamBlock --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("since") {
				q.Since = c.now().Add(-24 * time.Hour)
			}
			if err := checkRecords(&q.LogQuery); err != nil {
				return err
			}
			return c.logCounts(cmd.Context(), q, asJSON, all)
		},
	}
	c.addParams(cmd, &q, "by", "sender", "recipient", "domain", "site", "tenant", "class", "since", "until")
	cmd.Flags().IntVar(&q.Limit, "limit", defaultCounts, "how many values, the most frequent")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&all, "cluster", false, countsOfAll)
	oneOf(cmd, "class", bounce.Names())
	return cmd
}

func newBounceList(c *cli) *cobra.Command {
	return newList(c, list[api.Paging]{
		use: "list", short: "list inbound mail that the relay did not understand",
		long: `List mail to inbound domains that the relay did not understand, newest first:
mail to postmaster@ and abuse@, bounces in an unknown form, replies by people. The relay
keeps the newest 1000 messages, 64 MiB at most.`,
		example: `  mta bounce list
  mta bounce list --json`,
		what: "messages", show: bounceList,
	})
}

func bounceList(ctx context.Context, c *cli, client *api.Client, f api.Paging, p *pageFlags) error {
	l, err := pagesOf[api.InboundMail](ctx, client, p, api.OpInbound, f)
	switch {
	case err != nil:
		return err
	case p.asJSON:
		return writeJSON(c.out, l)
	case len(l.Mail) == 0:
		fmt.Fprintln(c.err, "no inbound mail is kept")
		return nil
	}
	t := draw.New("SUBJECT", "ID", ">AGE", "KIND", "~FROM", "~TO", ">SIZE")
	for _, m := range l.Mail {
		t.Add(m.Subject, m.ID, legible.Age(c.now().Sub(m.Time)), m.Kind, cmp.Or(m.From, angled(m.Sender)),
			strings.Join(m.Recipients, ", "), legible.Size(m.Size))
	}
	if err := t.Write(c.out, c.screen); err != nil {
		return err
	}
	if l.Next != "" {
		fmt.Fprintf(c.err, "%s shown of %d; for the next ones add: --after %q\n",
			plural(len(l.Mail), "message"), l.Kept, l.Next)
	}
	if l.Dropped > 0 {
		fmt.Fprintf(c.err, "%s deleted since the start of the relay, for space\n", plural(int(l.Dropped), "message"))
	}
	return nil
}

func newBounceShow(c *cli) *cobra.Command {
	content := false
	cmd := &cobra.Command{
		Use: "show ID", Short: "show a message that 'mta bounce list' lists",
		Long: `Show what is known about a message, and its headers and body. --content prints
the message alone, unchanged into a pipe or a file.`,
		Example: `  mta bounce show 0k7w1v0z8g002
  mta bounce show 0k7w1v0z8g002 --content >report.eml`,
		Args: argCount(1, 1,
			"want the id of one message, as in the first column of 'mta bounce list', got %d arguments"),
	}
	var rest func() error // prints the content
	answers(c, cmd, func(ctx context.Context, client *api.Client, ids []string) (m api.InboundMail, err error) {
		if content {
			return m, c.content(ctx, client, api.OpInboundContent, ids[0])
		}
		rest = func() error { return c.cleanContent(ctx, client, api.OpInboundContent, ids[0]) }
		return api.OpInboundMail.Call(ctx, client, api.None{}, ids[0])
	}, func(m api.InboundMail) error {
		if content {
			return nil
		}
		c.inboundFacts(&m)
		return rest()
	})
	cmd.Flags().Lookup("json").Usage = "print what is known as JSON, without the content"
	cmd.Flags().BoolVar(&content, "content", false, "print the headers and the body alone")
	cmd.MarkFlagsMutuallyExclusive("json", "content")
	return cmd
}

// inboundFacts prints what is known about a message beside its content, and a blank line.
func (c *cli) inboundFacts(m *api.InboundMail) {
	by := m.Peer
	if m.Helo != "" {
		by += " (" + m.Helo + ")"
	}
	f := c.facts(9)
	f.some("id", m.ID)
	f.some("kind", m.Kind)
	f.some("arrived", moment(m.Time, c.now()))
	f.some("from", by)
	f.some("sender", angled(m.Sender))
	f.some("to", strings.Join(m.Recipients, ", "))
	f.some("about", m.Message)
	f.some("size", legible.Size(m.Size))
	fmt.Fprintln(c.out)
}

const bounceUnknownHelp = `Show the hosts' replies that no rule classifies
(Uncategorized), by provider: their number since the start of the relay, and samples.
Replies that differ in numbers and addresses only count as one.

Give them a class with classify blocks in the configuration.`

func newBounceUnknown(c *cli) *cobra.Command {
	var q api.UnknownQuery
	cmd := &cobra.Command{
		Use: "unknown", Short: "show the replies that no rule for classes knows", Long: bounceUnknownHelp,
		Args: noArgs,
	}
	c.addParams(cmd, &q)
	return answers(c, cmd, func(ctx context.Context, client *api.Client, _ []string) (api.UnknownList, error) {
		return api.OpUnknownReplies.Call(ctx, client, q)
	}, c.bounceUnknown)
}

func (c *cli) bounceUnknown(l api.UnknownList) error {
	if len(l.Unknown) == 0 {
		fmt.Fprintln(c.err, "no unknown replies since the relay was started")
		return nil
	}
	t := draw.New("REPLY", "PROVIDER", ">COUNT", ">AGE", "MESSAGE")
	for _, of := range l.Unknown {
		left := of.Count
		for _, s := range of.Samples {
			left -= s.Count
			t.Add(strings.Join(strings.Fields(s.Reply.String()), " "), cmp.Or(of.Provider, "-"), s.Count,
				legible.Age(c.now().Sub(s.Last)), cmp.Or(s.Message, "-"))
		}
		if left > 0 {
			t.Add("others, of which no sample is kept", cmp.Or(of.Provider, "-"), left, "-", "-")
		}
	}
	return t.Write(c.out, c.screen)
}

const bounceTokenHelp = `Decode an address of a return path (b-TOKEN@...), an address to
unsubscribe (u-TOKEN@...) or a TOKEN: show its message, recipient and day, and whether
the relay would accept mail for it now.

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
		Use: "token {ADDRESS | TOKEN}", Short: "show the message that a return path names", Long: bounceTokenHelp,
		Args: argCount(1, 1, "want one address or token, got %d"),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := c.config()
			if err != nil {
				return err
			}
			keys, err := wiring.ReturnPathKeys(cfg)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				err = fmt.Errorf("%w: run this on the relay's machine, as root or as its user, with its configuration",
					err)
			}
			if err != nil {
				return err
			}
			named := nameToken(cfg, keys, args[0], c.now())
			if asJSON {
				err = writeJSON(c.out, named)
			} else {
				c.printToken(named, cfg.NodeID)
			}
			if err == nil && !named.Valid {
				return exitError(exitFailed)
			}
			return err
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
		out.Valid, out.Message, out.Recipient, out.Day = err == nil, t.Message.String(), t.Recipient+1,
			t.Day.Format(time.DateOnly)
		out.Node, out.ThisNode, out.Key, out.Signs = t.Node.String(), t.Node == returnpath.NodeOf(cfg.NodeID), &t.Key,
			t.Key == keys.Number()
		if until := keys.Until(t); !until.IsZero() {
			out.Until = &until
		}
		break
	}
	return out
}

func (c *cli) printToken(n namedByToken, nodeID string) {
	fact := c.facts(11).add
	if n.Message != "" {
		fact("for", "%s", map[string]string{"bounce": "bounces and complaints",
			"unsubscribe": "the recipient's unsubscription"}[n.For])
		fact("message", "%s", n.Message)
		if n.Recipient > 0 {
			fact("recipient", "number %d of the message", n.Recipient)
		} else {
			fact("recipient", "none: the transaction had several")
		}
		fact("day", "%s", n.Day)
		fact("node", "%s%s", n.Node,
			map[bool]string{true: " (this relay)", false: " (another relay; this one is " + nodeID + ")"}[n.ThisNode])
		fact("key", "%d%s", *n.Key, map[bool]string{true: "", false: " (no longer signs)"}[n.Signs])
	}
	switch {
	case !n.Valid:
		fact("valid", "no: %s", n.Why)
	case n.Until == nil:
		fact("valid", "yes")
	default:
		fact("valid", "yes, until %s", n.Until.Format(time.DateOnly))
	}
}

const bounceClassifyHelp = `Read returned messages as the relay does, and show the kind
of each FILE and the result for each recipient in it. A FILE is one message with its
header; "-" is standard input. No running relay is needed.

Kinds are bounce, delay, delivered, complaint, auto-reply, challenge, disposition,
unsubscribe and other. The exit status is 1 when a FILE can't be read. Only the first
256 KiB of a file count. With --reply, TEXT is a host's answer: its class, the meaning,
and the matching rule are shown.

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
		Use: "classify {FILE... | --reply TEXT}", Short: "show how the relay reads a bounce or another report",
		Long: bounceClassifyHelp, Args: filesOrReply,
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
	t := draw.New("DIAGNOSTIC", "~FILE", "KIND", "~RECIPIENT", "ACTION", "STATUS", "CODE", "CLASS", "HARD")
	for _, f := range files {
		rows := f.Reports
		if f.unnamed != nil {
			rows = []report.Report{*f.unnamed}
		}
		if len(rows) == 0 {
			rows = []report.Report{{}}
		}
		for _, r := range rows {
			t.Add(r.Diagnostic, append([]any{f.File, f.Kind, cmp.Or(r.Recipient, "-")}, fateOf(r)...)...)
		}
	}
	return t.Write(c.out, c.screen)
}

// fateOf gives the cells of what became of a recipient: complaints, replies and the like have none.
func fateOf(r report.Report) []any {
	if r.Action == "" {
		return []any{"-", "-", "-", "-", "-"}
	}
	return []any{r.Action, cmp.Or(r.Status.String(), "-"), cmp.Or(nonZero(r.Reply.Code), "-"), r.Class, yesNo(r.Hard)}
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
		fmt.Fprintln(c.out, "The reply is not a refusal.")
		return nil
	}
	by := "built in"
	switch {
	case rule != "":
		by = fmt.Sprintf("classify %q", rule)
	case class == bounce.Uncategorized:
		by = "none"
	}
	fact := c.facts(11).add
	fact("class", "%v: %s", class, class.Meaning())
	fact("hard", "%s", yesNo(said.Hard))
	fact("status", "%v", said.Status)
	fact("rule", "%s", by)
	fact("PowerMTA", "%s", class.PowerMTA())
	fact("SparkPost", "%v", class.SparkPost())
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
