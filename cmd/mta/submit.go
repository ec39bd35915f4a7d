package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/client"
	"example.org/mta/cmd/mta/draw"
	"example.org/mta/cmd/mta/sendmail"
	"example.org/mta/internal/legible"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/submission/request"
)

const sendHelp = `Submit a request by HTTP, the JSON of POST /v1/messages, from a file
or standard input (-). The relay is that of --url, of $MTA_URL, or the first api block
of the configuration. The API key is in the file of --key-file or in $MTA_KEY, never an
argument, which other users can see.

The command tries again for --patience, until the relay has answered; the message is
accepted once. If it gives up, it prints the Idempotency-Key with which the same request
can be sent again.

The exit status is 1 if a recipient is refused.`

// sending is what a request is sent with.
type sending struct {
	File     string        `flag:"json" help:"the <file> with the request; - is standard input"`
	Url      string        `flag:"url" help:"the <URL> of the relay's api listener (default: $MTA_URL, or that of the configuration)"`
	KeyFile  string        `flag:"key-file" help:"a <file> with the API key (default: $MTA_KEY has the key)"`
	Key      string        `flag:"idempotency-key" help:"the <name> under which the request counts once (default: a random one)"`
	Patience time.Duration `flag:"patience" help:"for how <long> to try again; 0s: once"`
	JSON     bool          `flag:"print-json" help:"print the relay's answer as JSON"`
}

func newSend(c *cli) *cobra.Command {
	s := sending{Patience: 2 * time.Minute}
	cmd := &cobra.Command{
		Use: "send --json FILE", Short: "submit a message by HTTP", Long: sendHelp, Args: noArgs,
		Example: `  mta send --json letter.json --key-file shop.key
  mta send --json - --url https://relay.example.com --idempotency-key order-4711`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.File == "" {
				return usagef("name the file of the request: --json FILE")
			}
			return c.send(cmd.Context(), s)
		},
	}
	addFlags(cmd.Flags(), &s)
	return cmd
}

func (c *cli) send(ctx context.Context, s sending) error {
	body, _, err := c.readInput(s.File)
	if err != nil {
		return err
	}
	to := client.Client{Patience: s.Patience}
	if s.Patience == 0 {
		to.Patience = -1
	}
	if to.URL, err = c.apiURL(s.Url); err != nil {
		return err
	}
	if to.Key, err = c.apiKey(s.KeyFile); err != nil {
		return err
	}
	sent, err := to.SendJSON(ctx, body, s.Key)
	if err != nil {
		return sendFault(err)
	}
	if s.JSON {
		err = writeJSON(c.out, sent)
	} else {
		err = c.printSent(sent)
	}
	if err == nil && refused(sent) {
		return exitError(exitFailed)
	}
	return err
}

// apiURL is where the relay takes requests.
func (c *cli) apiURL(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if url := c.env("MTA_URL"); url != "" {
		return url, nil
	}
	cfg, err := c.config()
	if err != nil {
		return "", err
	}
	if len(cfg.APIs) == 0 || len(cfg.APIs[0].Address) == 0 {
		return "", hinted{errors.New("the configuration has no api block"),
			`name the relay with --url, or add api "local" { address = "127.0.0.1:8080" } to it`}
	}
	return urlOf(cfg, cfg.APIs[0])
}

// urlOf is the URL of an api block, for programs on this machine.
func urlOf(cfg *config.Config, a *config.API) (string, error) {
	host, port, err := net.SplitHostPort(a.Address[0])
	if err != nil {
		return "", err
	}
	if a.TLS.Enabled() {
		return "https://" + net.JoinHostPort(cfg.Hostname, port), nil
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// apiKey reads the key from a file or the environment.
func (c *cli) apiKey(file string) (string, error) {
	if file == "" {
		if key := strings.TrimSpace(c.env("MTA_KEY")); key != "" {
			return key, nil
		}
		return "", hinted{errors.New("there is no API key"),
			"put it into a file and name that with --key-file, or into $MTA_KEY; 'mta key add' makes one"}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(content))
	if key == "" || strings.ContainsAny(key, " \r\n") {
		return "", fmt.Errorf("%s: want a file with one line, the API key", file)
	}
	return key, nil
}

// sendFault puts each fault on a line.
func sendFault(err error) error {
	var e *client.Error
	if !errors.As(err, &e) || len(e.Faults) == 0 {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s: %s", e.Status, e.Title, e.Detail)
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "\n  %s: %s", f.Pointer, f.Detail)
		if f.Remedy != "" {
			fmt.Fprintf(&b, " (%s)", f.Remedy)
		}
	}
	return errors.New(b.String())
}

func (c *cli) printSent(sent *client.Sent) error {
	t := draw.New("", "ID", "~RECIPIENT", "STATUS")
	for _, m := range sent.Messages {
		id := cmp.Or(m.ID, "-")
		if len(m.Recipients) == 0 {
			t.Add(m.Detail, id, "-", m.Status)
		}
		for _, r := range m.Recipients {
			t.Add(strings.TrimSpace(r.Code+" "+r.Detail), id, r.Address, r.Status)
		}
		if m.Content != "" {
			fmt.Fprint(c.out, m.Content)
		}
	}
	if sent.Replayed {
		fmt.Fprintln(c.err, "the relay has accepted this request before")
	}
	return t.Write(c.out, c.screen)
}

func refused(sent *client.Sent) bool {
	for _, m := range sent.Messages {
		for _, r := range m.Recipients {
			if r.Status == "refused" || r.Status == "failed" {
				return true
			}
		}
		if m.Status == "refused" || m.Status == "failed" {
			return true
		}
	}
	return false
}

func newSendmail(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "sendmail [-t] [-i] [-f SENDER] [RECIPIENT...]", Short: "submit a message to the relay, like sendmail",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return asExit(c.sendmail(args))
		},
	}
	cmd.Long = "Behave like sendmail. A link to mta under the name sendmail does the same. 'mta sendmail --help' " +
		"lists the options."
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
	_, err = api.OpChange.Call(context.Background(), client, api.Change{Action: api.Retry, All: true})
	switch {
	case api.Down(err), errors.Is(err, os.ErrPermission):
		return c.sysexit("sendmail", sendmail.ExUnavailable, err)
	case err != nil:
		return c.sysexit("sendmail", sendmail.ExSoftware, err)
	}
	return sendmail.ExOK
}

func newMailq(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "mailq", Short: "list the queue in the format of mailq", Long: mailqHelp, DisableFlagParsing: true,
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

const mailqHelp = `List the whole queue in the format of Postfix's mailq, as a link to
mta under that name does.`

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
		if strings.HasPrefix(arg, "--cluster") {
			return c.sysexit("mailq", sendmail.ExUsage,
				errors.New("it is for one node; of all nodes: mta queue list --cluster"))
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
	sender := cmp.Or(m.Sender, "MAILER-DAEMON")
	fmt.Fprintf(c.out, "%-17s%8d %-20s %s\n", m.ID+mailqMark(m), m.Size, m.Received.Local().Format(time.ANSIC)[:19],
		draw.Clean(sender))
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

const templateHelp = `Show what the stored templates of tenants make: those of a cluster, and those of the folder that
the configuration names, templates { path = "..." }; --path names another folder. These commands need no running relay.`

func newTemplate(c *cli) *cobra.Command {
	var path string
	g := group("template", "the templates of tenants", templateHelp,
		newTemplateList(c, &path), newTemplateRender(c, &path))
	g.PersistentFlags().StringVar(&path, "path", "", "the `folder` of templates (default: that of the configuration)")
	return g
}

// templates loads the stored templates.
func (c *cli) templates(path string) (*request.Templates, error) {
	if path != "" {
		return request.LoadTemplates(path, nil)
	}
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	shared := sharedOf(c, cfg, "", request.TemplateEntries)
	if cfg.Templates.Path == "" && shared.Empty() {
		if cfg.Cluster.SharesSecrets() {
			return nil, hinted{errors.New("this node has no templates of its cluster"),
				"the relay reads them while it runs: see 'mta cluster status', and add a folder at one node"}
		}
		return nil, hinted{errors.New("the configuration has no templates"),
			`add templates { path = "/etc/mta/templates" } to it, or name a folder with --path`}
	}
	return request.LoadTemplates(cfg.Templates.Path, shared)
}

func newTemplateList(c *cli, path *string) *cobra.Command {
	table := draw.New("", "TENANT", "NAME")
	return prints(c, &cobra.Command{
		Use: "list [TENANT]", Short: "list the stored templates", Args: cobra.MaximumNArgs(1),
	}, func(_ context.Context, tenants []string) (map[string][]string, error) {
		store, err := c.templates(*path)
		if err != nil {
			return nil, err
		}
		if len(tenants) == 0 {
			tenants = store.Tenants()
		}
		list := make(map[string][]string, len(tenants))
		for _, tenant := range tenants {
			list[tenant] = append([]string{}, store.Names(tenant)...)
			for _, name := range list[tenant] {
				table.Add("", tenant, name)
			}
		}
		return list, nil
	}, func(map[string][]string) error {
		if table.Empty() {
			fmt.Fprintln(c.err, "no templates")
		}
		return c.printTable(table)
	})
}

// rendering is what a template is rendered with.
type rendering struct {
	Data   string `flag:"data" help:"a <file> with a JSON object; - is standard input"`
	Strict bool   `flag:"strict" help:"refuse data that lack a variable"`
	Part   string `flag:"part" help:"print one part only: subject, text or html"`
	From   string `flag:"from" help:"the <address> in From"`
	To     string `flag:"to" help:"the <address> in To"`
	JSON   bool   `flag:"json" help:"print the parts as JSON"`
}

func newTemplateRender(c *cli, path *string) *cobra.Command {
	r := rendering{From: "sender@example.com", To: "recipient@example.com"}
	cmd := &cobra.Command{
		Use: "render TENANT NAME", Short: "print the message that a template makes",
		Long: `Print the message that a template makes of data, without the fields that the
relay adds. Without --data each variable is empty.`,
		Args: cobra.ExactArgs(2),
		Example: `  mta template render acme welcome --data ann.json
  mta template render acme welcome --data ann.json --part html`,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := c.templates(*path)
			if err != nil {
				return err
			}
			stored, ok := store.Stored(args[0], args[1])
			if !ok {
				return noTemplate(store, args[0], args[1])
			}
			data, err := c.templateData(r.Data)
			if err != nil {
				return err
			}
			mail, err := stored.Render(cmd.Context(), r.Strict, data)
			if err != nil {
				return err
			}
			return c.printRendered(mail, r)
		},
	}
	addFlags(cmd.Flags(), &r)
	oneOf(cmd, "part", []string{"subject", "text", "html"})
	return cmd
}

func noTemplate(store *request.Templates, tenant, name string) error {
	err := fmt.Errorf("the tenant %q has no template %q", tenant, name)
	names := store.Names(tenant)
	if like := legible.Nearest(name, names); like != "" {
		return hinted{err, fmt.Sprintf("did you mean %q?", like)}
	}
	if len(names) == 0 {
		return hinted{err, "it has none; 'mta template list' shows those of all tenants"}
	}
	return hinted{err, "it has " + strings.Join(names, ", ")}
}

// templateData reads a JSON object with numbers as they are written.
func (c *cli) templateData(file string) (request.Data, error) {
	if file == "" {
		return request.NewData(nil), nil
	}
	content, shown, err := c.readInput(file)
	if err != nil {
		return request.Data{}, err
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	var values map[string]any
	if err := d.Decode(&values); err != nil {
		return request.Data{},
			hinted{fmt.Errorf("%s: %w", shown, err), `data are a JSON object, such as {"name": "Ann"}`}
	}
	return request.NewData(values), nil
}

func (c *cli) printRendered(m request.Mail, r rendering) error {
	switch {
	case r.JSON:
		return writeJSON(c.out, struct {
			Subject string `json:"subject"`
			Text    string `json:"text"`
			HTML    string `json:"html"`
		}{m.Subject, m.Text, m.HTML})
	case r.Part == "subject":
		_, err := fmt.Fprintln(c.out, m.Subject)
		return err
	case r.Part == "text":
		_, err := io.WriteString(c.out, m.Text)
		return err
	case r.Part == "html":
		_, err := io.WriteString(c.out, m.HTML)
		return err
	case r.Part != "":
		return usagef("--part is subject, text or html")
	}
	from, err := request.ParseMailbox(r.From)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	to, err := request.ParseMailbox(r.To)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	letter := request.Letter{
		From: []request.Mailbox{from}, To: []request.Mailbox{to}, Subject: m.Subject, Text: m.Text, HTML: m.HTML,
		Date: c.now(), MessageID: "rendered@" + from.Address.Domain(), Random: rand.Reader,
	}
	_, err = letter.WriteTo(c.out)
	return err
}
