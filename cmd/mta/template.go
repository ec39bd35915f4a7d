package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/spelling"
	"example.org/mta/submission/compose"
	"example.org/mta/submission/request"
	"example.org/mta/submission/template"
)

const templateHelp = `Show what the stored templates of tenants make. The configuration names their folder,
templates { path = "..." }; --path names another. These commands need no running relay.`

func newTemplate(c *cli) *cobra.Command {
	var path string
	g := group("template", "the templates of tenants", newTemplateList(c, &path), newTemplateRender(c, &path))
	g.Long = templateHelp
	g.PersistentFlags().StringVar(&path, "path", "", "the `folder` of templates (default: that of the configuration)")
	return g
}

// templates loads the stored templates.
func (c *cli) templates(path string) (*template.Store, error) {
	if path == "" {
		cfg, err := c.config()
		if err != nil {
			return nil, err
		}
		if path = cfg.Templates.Path; path == "" {
			return nil, hinted{errors.New("the configuration has no templates"), `add templates { path = "/etc/mta/templates" } to it, or name a folder with --path`}
		}
	}
	return template.Load(path)
}

func newTemplateList(c *cli, path *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [TENANT]",
		Short: "list the stored templates",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := c.templates(*path)
			if err != nil {
				return err
			}
			tenants := store.Tenants()
			if len(args) == 1 {
				tenants = args
			}
			list := make(map[string][]string, len(tenants))
			table := &draw.Table{Columns: []draw.Column{{Title: "TENANT"}, {Title: "NAME"}}}
			for _, tenant := range tenants {
				list[tenant] = append([]string{}, store.Names(tenant)...)
				for _, name := range list[tenant] {
					table.Add("", tenant, name)
				}
			}
			if asJSON {
				return writeJSON(c.out, list)
			}
			if table.Empty() {
				fmt.Fprintln(c.err, "no templates")
				return nil
			}
			return table.Write(c.out, c.screen)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// rendering is what a template is rendered with.
type rendering struct {
	data, part, from, to string
	strict, asJSON       bool
}

func newTemplateRender(c *cli, path *string) *cobra.Command {
	var r rendering
	cmd := &cobra.Command{
		Use:   "render TENANT NAME",
		Short: "print the message that a template makes",
		Long: `Print the message that a template makes of data, as it would leave the relay, without the
fields that the relay adds. Without --data there are no data: each variable is empty.`,
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
			data, err := c.templateData(r.data)
			if err != nil {
				return err
			}
			mail, err := stored.Render(cmd.Context(), r.strict, data)
			if err != nil {
				return err
			}
			return c.printRendered(mail, r)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.data, "data", "", "a `file` with a JSON object; - is standard input")
	f.BoolVar(&r.strict, "strict", false, "refuse data that lack a variable")
	f.StringVar(&r.part, "part", "", "print one part only: subject, text or html")
	f.StringVar(&r.from, "from", "sender@example.com", "the `address` in From")
	f.StringVar(&r.to, "to", "recipient@example.com", "the `address` in To")
	f.BoolVar(&r.asJSON, "json", false, "print the parts as JSON")
	oneOf(cmd, "part", []string{"subject", "text", "html"})
	return cmd
}

func noTemplate(store *template.Store, tenant, name string) error {
	err := fmt.Errorf("the tenant %q has no template %q", tenant, name)
	names := store.Names(tenant)
	if like := spelling.Nearest(name, names); like != "" {
		return hinted{err, fmt.Sprintf("did you mean %q?", like)}
	}
	if len(names) == 0 {
		return hinted{err, "it has none; 'mta template list' shows those of all tenants"}
	}
	return hinted{err, "it has " + strings.Join(names, ", ")}
}

// templateData reads a JSON object with numbers as they are written.
func (c *cli) templateData(file string) (template.Data, error) {
	if file == "" {
		return template.NewData(nil), nil
	}
	content, shown, err := c.readInput(file)
	if err != nil {
		return template.Data{}, err
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	var values map[string]any
	if err := d.Decode(&values); err != nil {
		return template.Data{}, hinted{fmt.Errorf("%s: %w", shown, err), `data are a JSON object, such as {"name": "Ann"}`}
	}
	return template.NewData(values), nil
}

func (c *cli) printRendered(m template.Mail, r rendering) error {
	switch {
	case r.asJSON:
		return writeJSON(c.out, struct {
			Subject string `json:"subject"`
			Text    string `json:"text"`
			HTML    string `json:"html"`
		}{m.Subject, m.Text, m.HTML})
	case r.part == "subject":
		_, err := fmt.Fprintln(c.out, m.Subject)
		return err
	case r.part == "text":
		_, err := io.WriteString(c.out, m.Text)
		return err
	case r.part == "html":
		_, err := io.WriteString(c.out, m.HTML)
		return err
	case r.part != "":
		return usagef("--part is subject, text or html")
	}
	from, err := request.ParseMailbox(r.from)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	to, err := request.ParseMailbox(r.to)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	letter := compose.Letter{
		From: []request.Mailbox{from}, To: []request.Mailbox{to}, Subject: m.Subject, Text: m.Text, HTML: m.HTML,
		Date: c.now(), MessageID: "rendered@" + from.Address.Domain(), Random: rand.Reader,
	}
	_, err = letter.WriteTo(c.out)
	return err
}
