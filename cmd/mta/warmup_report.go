package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
)

const warmupReportHelp = `Import complaints about the mail of a warming source. They count for its health from now
on, whatever their day. Figures for the same day replace earlier ones. Days are in UTC.

--google reads the daily figures of Google's Postmaster Tools: a CSV file with a header, one
column "Date" and one with "spam rate" or "spam ratio" in its name. --snds reads those of
Microsoft's SNDS in the format of its data access: no header, the IP in the first column,
the end of the activity in the third, recipients in the sixth, the complaint rate in the
eighth; rows of other IPs are ignored. Days before the last two weeks are ignored.

SOURCE is the name of a source, or its IP.`

func newWarmupReport(c *cli) *cobra.Command {
	var r api.WarmupReport
	var google, snds string
	cmd := &cobra.Command{
		Use:   "report SOURCE",
		Short: "import complaints",
		Long:  warmupReportHelp,
		Example: `  mta warmup report acme-1 --provider yahoo --complaints 3 --day 2026-11-21
  mta warmup report acme-1 --snds snds.csv`,
		Args: oneName("a source"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.warmupReport(cmd, args[0], r, google, snds)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Provider, "provider", "", "the `provider` whose users complained")
	f.Int64Var(&r.Complaints, "complaints", 0, "how `many` complaints there were")
	f.StringVar(&r.Day, "day", "", "the `day`, as 2026-11-21 (default: today)")
	f.StringVar(&google, "google", "", "a CSV `file` of Google's Postmaster Tools, - for standard input")
	f.StringVar(&snds, "snds", "", "a CSV `file` of Microsoft's SNDS, - for standard input")
	changeFlags(cmd, &r.Intent)
	cmd.ValidArgsFunction = c.complete(c.sourceNames)
	return cmd
}

func (c *cli) warmupReport(cmd *cobra.Command, name string, r api.WarmupReport, google, snds string) error {
	counted := cmd.Flags().Changed("complaints")
	switch {
	case google != "" && snds != "" || google+snds != "" && (counted || r.Day != ""):
		return usagef("give one of --complaints, --google and --snds")
	case google+snds == "" && !counted:
		return usagef("give --complaints, or a file: --google or --snds")
	case counted && r.Provider == "":
		return usagef("give the provider whose users complained: --provider")
	case r.Complaints < 0:
		return usagef("--complaints: %d is less than none", r.Complaints)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	w, err := client.Warmup(cmd.Context(), name)
	if err != nil {
		return err
	}
	if r.Day == "" {
		r.Day = c.now().UTC().Format(time.DateOnly)
	}
	reports := []api.WarmupReport{r}
	if google+snds != "" {
		if reports, err = c.readReports(google, snds, w.IP); err != nil {
			return err
		}
	}
	for i := range reports {
		reports[i].Provider = cmp.Or(r.Provider, reports[i].Provider)
		reports[i].Intent = r.Intent
		done, err := client.ReportWarmup(cmd.Context(), name, reports[i])
		if err != nil {
			return err
		}
		w = done.Warmup
	}
	if r.DryRun {
		fmt.Fprintf(c.out, "the complaints of %s would be taken\n", plural(len(reports), "day"))
		return nil
	}
	fmt.Fprintf(c.out, "%s: took the complaints of %s\n", warmupTitle(&w), plural(len(reports), "day"))
	return nil
}

// readReports reads a file of Google's or Microsoft's daily figures, those of the last two weeks.
func (c *cli) readReports(google, snds, ip string) ([]api.WarmupReport, error) {
	path, read := google, readGoogle
	if snds != "" {
		path, read = snds, func(rows [][]string) ([]api.WarmupReport, error) { return readSNDS(rows, ip) }
	}
	in, shown, err := c.input(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	const most = 16 << 20
	r := csv.NewReader(io.LimitReader(in, most))
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	all, err := read(rows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	since := c.now().UTC().AddDate(0, 0, -13).Format(time.DateOnly)
	all = slices.DeleteFunc(all, func(r api.WarmupReport) bool { return r.Day < since })
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: it has no figures for %s since %s", shown, ip, since)
	}
	return all, nil
}

func readGoogle(rows [][]string) (all []api.WarmupReport, err error) {
	column := func(names ...string) int {
		if len(rows) == 0 {
			return -1
		}
		return slices.IndexFunc(rows[0], func(title string) bool {
			return slices.ContainsFunc(names, func(n string) bool {
				return strings.Contains(strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(title)), n)
			})
		})
	}
	day, rate := column("date"), column("spam rate", "spam ratio")
	if day < 0 || rate < 0 {
		return nil, errors.New(`line 1: a header with "Date" and "Spam rate" is wanted`)
	}
	for i, row := range rows[1:] {
		if len(row) <= max(day, rate) || strings.TrimSpace(row[rate]) == "" {
			continue // too little mail for a figure
		}
		d, err := reportDay(row[day], time.DateOnly, "20060102", "Jan 2, 2006", "1/2/2006")
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		x, err := reportRate(row[rate])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		all = append(all, api.WarmupReport{Provider: "google", Day: d, Rate: x})
	}
	return all, nil
}

func readSNDS(rows [][]string, ip string) (all []api.WarmupReport, err error) {
	for i, row := range rows {
		if len(row) < 8 {
			return nil, fmt.Errorf("line %d: it has %d columns, SNDS has 14", i+1, len(row))
		}
		if row[0] != ip {
			continue
		}
		d, err := reportDay(row[2], "1/2/2006 3:04 PM", "1/2/2006 15:04")
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		n, err := strconv.ParseInt(row[5], 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("line %d: %q is no number of recipients", i+1, row[5])
		}
		x, err := reportRate(row[7])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		all = append(all, api.WarmupReport{Provider: "microsoft", Day: d, Complaints: int64(math.Round(x * float64(n)))})
	}
	return all, nil
}

func reportDay(text string, layouts ...string) (string, error) {
	for _, l := range layouts {
		if t, err := time.Parse(l, strings.TrimSpace(text)); err == nil {
			return t.Format(time.DateOnly), nil
		}
	}
	return "", fmt.Errorf("%q is no date", text)
}

// reportRate reads a share: "0.3%", "0.003", or "< 0.1%", which is none.
func reportRate(text string) (float64, error) {
	number, below := strings.CutPrefix(strings.TrimSpace(text), "<")
	number, percents := strings.CutSuffix(strings.TrimSpace(number), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percents {
		x /= 100
	}
	switch {
	case err != nil || !(x >= 0 && x <= 1):
		return 0, fmt.Errorf("%q is no share of the mail", text)
	case below:
		return 0, nil
	}
	return x, nil
}
