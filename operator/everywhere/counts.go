package everywhere

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"example.org/mta/bounce"
	"example.org/mta/internal/reply"
	"example.org/mta/operator/api"
)

// Counts adds up what nodes have counted in their logs, and leaves the limit most frequent values.
func Counts(found []Row[api.LogCounts], limit int) api.LogCounts {
	sum := api.LogCounts{Exact: true, Groups: []api.LogCount{}}
	at := make(map[string]int)
	var damaged []string
	for _, r := range found {
		c := r.Value
		sum.By, sum.Records, sum.Looked = c.By, sum.Records+c.Records, sum.Looked+c.Looked
		sum.Others, sum.Left = sum.Others+c.Others, sum.Left+c.Left
		sum.Exact = sum.Exact && c.Exact && c.Left == 0 // else a group of another node may be among those that are left
		if c.Damaged != "" {
			damaged = append(damaged, fmt.Sprintf("node %d: %s", r.Node, c.Damaged))
		}
		for _, g := range c.Groups {
			key := alike(&g)
			i, there := at[key]
			if !there {
				at[key] = len(sum.Groups)
				sum.Groups = append(sum.Groups, g)
				continue
			}
			of := &sum.Groups[i]
			of.Count += g.Count
			if g.Reply != nil && replyOrder(g.Reply, of.Reply) < 0 {
				of.Reply = g.Reply
			}
		}
	}
	slices.SortFunc(sum.Groups, func(a, b api.LogCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name), replyOrder(a.Reply, b.Reply))
	})
	for _, g := range sum.Groups[min(limit, len(sum.Groups)):] {
		sum.Others += g.Count
		sum.Left++
	}
	sum.Groups = sum.Groups[:min(limit, len(sum.Groups))]
	for i := range sum.Groups {
		sum.Groups[i].Share = float64(sum.Groups[i].Count) / float64(sum.Records)
	}
	sum.Damaged = strings.Join(damaged, "\n")
	return sum
}

// alike is the same for groups that are one: replies differ in numbers and addresses.
func alike(g *api.LogCount) string {
	if g.Reply == nil {
		return g.Name
	}
	return string(bounce.AppendPattern([]byte(g.Name+"\x00"+g.Reply.Enhanced+"\x00"),
		&reply.Reply{Code: g.Reply.Code, Text: g.Reply.Text}))
}

func replyOrder(a, b *api.Reply) int {
	if a == nil || b == nil {
		return 0
	}
	return cmp.Or(a.Code-b.Code, cmp.Compare(a.Text, b.Text))
}
